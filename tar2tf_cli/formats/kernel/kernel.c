/* The plain part of reading tars and TFRecords, where Python takes most of its time for small samples.

   Each function stops at the first thing that is not plain, and Python continues from there. Therefore the kernel reports
   no errors, and every rule is complete in Python only: headers in formats/tar.py, keys and batches in samples/grouping.py,
   messages in formats/example.py, framing in formats/tfrecord.py. Only the limited API of Python 3.10 is used. */

#define _XOPEN_SOURCE 700 /* pread */
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <float.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "records.h"

PyAPI_FUNC(int) _PyBytes_Resize(PyObject **, Py_ssize_t); /* part of the stable ABI, but missing in its headers */

#include "digests.h"
#include "members.h"
#include "writing.h"
#include "samples.h"
#include "examples.h"
#include "digest_rows.h"
#include "record_samples.h"
#include "added_entries.h"
#include "csv_rows.h"
#include "json_rows.h"
#include "joined_rows.h"
#include "hashes.h"

PyDoc_STRVAR(extend_doc, "extend(crc, data[, by_table])\n--\n\nReturn the CRC-32C of bytes, continuing from a previous one.");

static PyObject *extend(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    char *data;
    Py_ssize_t size;
    unsigned long before = count < 2 ? (unsigned long)PyErr_BadArgument() : PyLong_AsUnsignedLong(args[0]);
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(args[1], &data, &size)) return NULL;
    return PyLong_FromUnsignedLong((count > 2 ? crc_by_table : crc32c)((uint32_t)before, (bytes_t)data, (size_t)size));
}

static PyMethodDef methods[] = {
    {"samples", samples, METH_VARARGS, samples_doc},
    {"records", records, METH_VARARGS, records_doc},
    {"index_lines", index_lines, METH_VARARGS, index_lines_doc},
    {"examples", examples, METH_VARARGS, examples_doc},
    {"sums", sums, METH_VARARGS, sums_doc},
    {"features", features, METH_VARARGS, features_doc},
    {"sizes", sizes, METH_VARARGS, sizes_doc},
    {"columns", columns, METH_VARARGS, columns_doc},
    {"rows", rows, METH_VARARGS, rows_doc},
    {"unframed", unframed, METH_VARARGS, unframed_doc},
    {"sample_rows", sample_rows, METH_VARARGS, sample_rows_doc},
    {"record_rows", record_rows, METH_VARARGS, record_rows_doc},
    {"record_digests", record_digests, METH_VARARGS, record_digests_doc},
    {"parsed", parsed, METH_VARARGS, parsed_doc},
    {"table", table, METH_VARARGS, table_doc},
    {"positions", positions, METH_VARARGS, positions_doc},
    {"widened", widened, METH_VARARGS, widened_doc},
    {"joined", joined, METH_VARARGS, joined_doc},
    {"hashes", hashes, METH_VARARGS, hashes_doc},
    {"ordered", ordered, METH_VARARGS, ordered_doc},
    {"find", find, METH_VARARGS, find_doc},
    {"extend", (PyCFunction)(void *)extend, METH_FASTCALL, extend_doc},
    {NULL, NULL, 0, NULL},
};

static int begin(PyObject *module) {
    for (int byte = 0; byte < 256; byte++) table_of_crc32[byte] = crc_of_byte(byte, 0xEDB88320);
    make_blank_header();
    if (PyModule_AddIntConstant(module, "hardware", begin_crc())) return -1;
    return PyModule_AddIntConstant(module, "api", 21);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)begin}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_native", .m_size = 0, .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
