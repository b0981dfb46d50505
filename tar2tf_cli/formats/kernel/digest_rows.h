/* Rows of digests, by which `diff` and `verify --against` compare samples and records. Part of kernel.c, which includes
   it once. */

enum { ROW_SIZE = 32, SEVERAL = 1 }; /* SEVERAL: tag of several bytes values, used instead of their list's tag */

/* Return the size of a sample's details. */
static size_t room_for_details(const Entry *entries, int count) {
    size_t room = 8;
    for (int number = 0; number < count; number++) room += 12 + entries[number].name_size + (number ? 0 : entries[number].size);
    return room;
}

/* Write a sample's row and details in the format of checking/rows.py; the key is the first entry. */
static unsigned char *put_details(unsigned char *out, unsigned char *row, const Entry *entries, int count, uint64_t offset) {
    const Entry *key = entries->data ? entries : NULL; /* a record without a key has an empty first entry */
    uint64_t content = 0, hash = 0;
    if (key) {
        hash = xxh64(key->data, key->size, xxh64((bytes_t)"__key__", 7, DELIMITED));
        if (!hash) hash = 1;
    }
    out = put_number(out, key ? key->size : UINT32_MAX, 4);
    if (key) memcpy(out, key->data, key->size), out += key->size;
    out = put_number(out, (uint64_t)count - 1, 4);
    for (int number = 1; number < count; number++) {
        const Entry *entry = &entries[number];
        uint64_t digest = xxh64(entry->data, entry->size, xxh64(entry->name, entry->name_size, (uint64_t)entry->tag));
        content += digest;
        out = put_number(put_number(out, entry->name_size, 4), digest, 8);
        memcpy(out, entry->name, entry->name_size);
        out += entry->name_size;
    }
    row = put_number(put_number(row, content + hash, 8), content, 8);
    put_number(put_number(row, hash, 8), offset, 8);
    return out;
}

typedef struct {
    PyObject *rows, *details;
    Py_ssize_t rows_room, details_room, count, used;
    uint64_t offset; /* position of the first details in the whole file */
} Digested;

/* Add a sample; 0 without memory, as an error. */
static int add_digested(Digested *all, const Entry *entries, int count) {
    const Py_ssize_t needed = (Py_ssize_t)room_for_details(entries, count);
    if (!all->rows && !(all->rows = PyBytes_FromStringAndSize(NULL, all->rows_room = 1 << 12))) return 0;
    if (!all->details && !(all->details = PyBytes_FromStringAndSize(NULL, all->details_room = 1 << 13))) return 0;
    if ((all->count + 1) * ROW_SIZE > all->rows_room && _PyBytes_Resize(&all->rows, all->rows_room *= 2)) return 0;
    if (needed > all->details_room - all->used &&
        _PyBytes_Resize(&all->details, all->details_room = 2 * (all->used + needed))) return 0;
    unsigned char *row = (unsigned char *)PyBytes_AsString(all->rows) + all->count++ * ROW_SIZE;
    unsigned char *first = (unsigned char *)PyBytes_AsString(all->details), *out = first + all->used;
    all->used = put_details(out, row, entries, count, all->offset + (uint64_t)all->used) - first;
    return 1;
}

/* Convert rows and details to bytes objects for the result; 0 without memory, as an error. */
static int end_digested(Digested *all) {
    if (!all->rows && !(all->rows = PyBytes_FromStringAndSize(NULL, 0))) return 0;
    if (!all->details && !(all->details = PyBytes_FromStringAndSize(NULL, 0))) return 0;
    return !_PyBytes_Resize(&all->rows, all->count * ROW_SIZE) && !_PyBytes_Resize(&all->details, all->used);
}

PyDoc_STRVAR(sample_rows_doc, "sample_rows(data, rows, places, signatures, offset, maps)\n--\n\n"
"Return the rows of digests of a batch of samples, and their details, in the format of checking/rows.py; None if Python\n"
"has to do it.\n\n"
"The first four arguments are those of the `Batch` (api/values.py); `offset` is that of the first details; `maps` is\n"
"the argument of `records`, with the key as the first feature of each map.");

static PyObject *sample_rows(PyObject *module, PyObject *args) {
    PyObject *data, *result = NULL;
    Samples all = {.maps = Py_None};
    Digested made = {.count = 0};
    unsigned long long offset;
    char *start;
    if (!PyArg_ParseTuple(
            args, "Sy#y#O!KO", &data, &all.rows, &all.rows_size, &all.places, &all.places_size, &PyList_Type,
            &all.signatures, &offset, &all.maps)) return NULL;
    if (PyBytes_AsStringAndSize(data, &start, &all.size)) return NULL;
    if (all.maps != Py_None && !PyList_Check(all.maps)) return PyErr_Format(PyExc_TypeError, "a list, or None");
    all.data = (bytes_t)start;
    made.offset = offset;
    Entry entries[MOST_ALL + 1];
    for (Py_ssize_t number = 0; number < all.rows_size / (Py_ssize_t)sizeof(Row); number++) {
        int count = read_entries(&all, number, entries);
        if (count < 0) PyErr_Format(PyExc_ValueError, "the rows are not those of samples in these bytes");
        if (!count) result = Py_NewRef(Py_None);
        if (count <= 0 || !add_digested(&made, entries, count)) goto done;
    }
    if (end_digested(&made)) result = Py_BuildValue("OO", made.rows, made.details);
done:
    Py_XDECREF(made.rows);
    Py_XDECREF(made.details);
    return result;
}

/* Whether all names are ASCII, and lengths and numbers are written in as few bytes as possible. */
static int is_shortest(const Feature *feature, int64_t count) {
    for (size_t at = 0; at < feature->name_size; at++)
        if (feature->name[at] > 126) return 0;
    if (feature->kind == FLOATS || !count) return 1;
    bytes_t at = feature->list, end = feature->end, stop = at;
    if (feature->kind == DELIMITED) {
        size_t total = 0;
        for (; at < end; at = stop) {
            bytes_t value = content(at, end, DELIMITED, &stop);
            total += delimited((size_t)(stop - value));
        }
        return total == (size_t)(end - feature->list);
    }
    at = content(at, end, DELIMITED, &end);
    for (uint64_t number; at < end; at = stop) {
        stop = read_number(at, end, &number);
        if (!stop || stop - at != (ptrdiff_t)varint_size(number) || (stop - at == 10 && stop[-1] > 1)) return 0;
    }
    return 1;
}

/* Read an example of the usual form as entries, the first of which is the key (without data if there is none);
   returns the number of entries, or 0 if Python has to do it. */
static int read_example(bytes_t at, bytes_t end, Entry *entries) {
    Feature feature;
    bytes_t stop;
    int count = 1;
    if (!(at = content(at, end, DELIMITED, &stop)) || stop != end) return 0;
    entries[0] = (Entry){"__key__", NULL, 7, 0, DELIMITED, {0}, 0};
    for (; at < end; at = feature.end) {
        int64_t values, size;
        if (count > MOST_KNOWN || !read_feature(at, end, &feature) || (values = count_values(&feature, &size)) < 0) return 0;
        if (!is_shortest(&feature, values)) return 0;
        Entry entry = {feature.name, feature.list, feature.name_size, 0, feature.kind, {0}, 0};
        for (int other = 0; other < count; other++)
            if ((other || entries->data) && !compare(entries[other].name, entries[other].name_size, entry.name, entry.name_size)) return 0;
        if (feature.kind == DELIMITED && values != 1) {
            entry.tag = SEVERAL;
            entry.size = (size_t)(feature.end - feature.list);
        } else if (values) {
            entry.data = content(feature.list, feature.end, DELIMITED, &stop);
            entry.size = (size_t)size;
        }
        if (compare(entry.name, entry.name_size, "__key__", 7)) entries[count++] = entry;
        else if (entry.tag == DELIMITED) entries[0] = entry;
        else return 0; /* a number, or a list that is no key */
    }
    return count;
}

/* Note the tags of entries that hold numbers or several values; 0 if a tag has changed, or there are too many. */
static int note_numbers(Entry *noted, int *noted_count, const Entry *entries, int count) {
    for (int number = 1; number < count; number++) {
        int other = 0;
        const Entry *entry = &entries[number];
        if (entry->tag == DELIMITED) continue;
        while (other < *noted_count && compare(noted[other].name, noted[other].name_size, entry->name, entry->name_size)) other++;
        if (other == MOST_KNOWN || (other < *noted_count && noted[other].tag != entry->tag)) return 0;
        if (other == *noted_count) noted[(*noted_count)++] = *entry;
    }
    return 1;
}

PyDoc_STRVAR(record_rows_doc, "record_rows(data, position, end, offset)\n--\n\n"
"Return the rows of digests of framed records in a range of bytes or a bytearray, and their details, up to the first\n"
"record that is not a complete example of the usual form.\n\n"
"Returns the position after the last one; the rows; the details, the first of which are at `offset`; and a list of the\n"
"names and kinds of the features that hold numbers or several values.");

static PyObject *record_rows(PyObject *module, PyObject *args) {
    PyObject *data, *numbers = NULL, *result = NULL;
    Py_ssize_t position, size;
    unsigned long long offset;
    if (!PyArg_ParseTuple(args, "OnnK", &data, &position, &size, &offset)) return NULL;
    bytes_t start = part_of(data, position, size);
    if (!start) return NULL;
    bytes_t at = start + position, end = start + size;
    Digested made = {.offset = offset};
    Entry entries[MOST_KNOWN + 2], noted[MOST_KNOWN];
    int noted_count = 0;
    for (size_t length; end - at >= FRAMING; at += length + FRAMING) {
        bytes_t message = message_at(at, end, &length);
        int count = message ? read_example(message, message + length, entries) : 0;
        if (!count || !note_numbers(noted, &noted_count, entries, count)) break;
        if (!add_digested(&made, entries, count)) goto done;
    }
    if (!(numbers = PyList_New(0))) goto done;
    for (int number = 0; number < noted_count; number++) {
        const Entry *entry = &noted[number];
        const char *kind = entry->tag == SEVERAL ? "bytes" : entry->tag == FLOATS ? "float" : "int64";
        PyObject *pair = Py_BuildValue("s#s", entry->name, (Py_ssize_t)entry->name_size, kind);
        int failed = !pair || PyList_Append(numbers, pair);
        Py_XDECREF(pair);
        if (failed) goto done;
    }
    if (end_digested(&made)) result = Py_BuildValue("nOOO", (Py_ssize_t)(at - start), made.rows, made.details, numbers);
done:
    Py_XDECREF(made.rows);
    Py_XDECREF(made.details);
    Py_XDECREF(numbers);
    return result;
}

PyDoc_STRVAR(record_digests_doc, "record_digests(data, position, end)\n--\n\n"
"Return the XXH64 digest of each framed record's data in a range of bytes or a bytearray, as unsigned 64-bit integers, up\n"
"to the first record that is incomplete or has a wrong CRC; and the position after the last one.");

static PyObject *record_digests(PyObject *module, PyObject *args) {
    PyObject *data, *result;
    Py_ssize_t position, size;
    if (!PyArg_ParseTuple(args, "Onn", &data, &position, &size)) return NULL;
    bytes_t start = part_of(data, position, size);
    if (!start || !(result = PyBytes_FromStringAndSize(NULL, (size - position) / FRAMING * 8))) return NULL;
    bytes_t at = start + position, end = start + size, message;
    char *first = PyBytes_AsString(result), *out = first;
    Py_BEGIN_ALLOW_THREADS
    for (size_t length; end - at >= FRAMING && (message = message_at(at, end, &length)); at += length + FRAMING, out += 8) {
        uint64_t digest = xxh64(message, length, 0);
        memcpy(out, &digest, 8);
    }
    Py_END_ALLOW_THREADS
    return _PyBytes_Resize(&result, out - first) ? NULL : Py_BuildValue("Nn", result, (Py_ssize_t)(at - start));
}
