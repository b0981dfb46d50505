/* CSV rows that are joined to samples. Part of kernel.c, which includes it once. */

enum { MOST_CELLS = 64 };

/* Find the cells of a line without quotes, at most `most`; returns how many there are, or -1 if Python has to do it. */
static int find_cells(const char *at, const char *end, char mark, Text *cells, int most) {
    int count = 0;
    if (memchr(at, '"', (size_t)(end - at))) return -1;
    for (;; count++) {
        if (count == most) return -1;
        const char *stop = memchr(at, mark, (size_t)(end - at));
        cells[count] = (Text){(bytes_t)at, (stop ? stop : end) - at};
        if (!stop) return count + 1;
        at = stop + 1;
    }
}

static int is_utf8(const char *at, Py_ssize_t size) {
    Py_ssize_t plain = 0;
    while (plain < size && !(at[plain] & 0x80)) plain++;
    PyObject *text = plain == size ? NULL : PyUnicode_FromStringAndSize(at, size);
    if (plain < size && !text) return PyErr_Clear(), 0;
    Py_XDECREF(text);
    return 1;
}

PyDoc_STRVAR(table_doc, "table(lines, mark, columns, key, file, offset)\n--\n\n"
"Four unsigned 64-bit integers for each row in lines of CSV: the hash of the cell with the key, the number of the file,\n"
"the offset of the row there, and its size; blank lines are none. None if a row has quotes, another number of cells than\n"
"`columns`, or bytes that are unusual. `offset` is that of the first line.");

static PyObject *table(PyObject *module, PyObject *args) {
    const char *lines, *mark, *stop;
    Py_ssize_t size, mark_size, used = 0, room = 0;
    int columns, key;
    unsigned long long file, offset;
    PyObject *result = NULL;
    Text cells[MOST_CELLS];
    if (!PyArg_ParseTuple(args, "y#y#iiKK", &lines, &size, &mark, &mark_size, &columns, &key, &file, &offset)) return NULL;
    if (mark_size != 1 || key < 0 || key >= columns || columns > MOST_CELLS) Py_RETURN_NONE;
    if (memchr(lines, 0, (size_t)size) || !is_utf8(lines, size)) Py_RETURN_NONE;
    for (const char *at = lines, *end = lines + size; at < end; at = stop) {
        const char *last = memchr(at, '\n', (size_t)(end - at));
        stop = last ? last + 1 : end;
        last = last ? last : end;
        if (last > at && last < stop && last[-1] == '\r') last--;
        if (last == at) continue;
        if (memchr(at, '\r', (size_t)(last - at)) || find_cells(at, last, *mark, cells, columns) != columns) {
            Py_XDECREF(result);
            Py_RETURN_NONE;
        }
        uint64_t row[4] = {
            key_hash(cells[key].data, (size_t)cells[key].size), file, offset + (uint64_t)(at - lines), (uint64_t)(stop - at)};
        if (!result && !(result = PyBytes_FromStringAndSize(NULL, room = size))) return NULL;
        if (room - used < (Py_ssize_t)sizeof row && _PyBytes_Resize(&result, room = 2 * room + (Py_ssize_t)sizeof row)) return NULL;
        memcpy(PyBytes_AsString(result) + used, row, sizeof row);
        used += (Py_ssize_t)sizeof row;
    }
    if (!result) return PyBytes_FromStringAndSize(NULL, 0);
    return _PyBytes_Resize(&result, used) ? NULL : result;
}

/* Read the row at an offset of a file as a dict of all cells but the key's, if the row has the key. NULL without an
   error if it has another key, or if Python has to read it, which sets `odd` to 1. */
static PyObject *read_row(int file, const uint64_t *place, char mark, PyObject *names, int key, Text wanted, int *odd) {
    char line[1 << 14];
    Text cells[MOST_CELLS];
    Py_ssize_t size = (Py_ssize_t)place[3], columns = PyList_Size(names);
    PyObject *made = NULL;
    *odd = 1;
    if (size > (Py_ssize_t)sizeof line || pread(file, line, (size_t)size, (off_t)place[2]) != size) return NULL;
    while (size && (line[size - 1] == '\n' || line[size - 1] == '\r')) size--;
    if (!is_utf8(line, size) || find_cells(line, line + size, mark, cells, (int)columns) != columns) return NULL;
    *odd = 0;
    if (compare(cells[key].data, (size_t)cells[key].size, wanted.data, (size_t)wanted.size)) return NULL;
    if (!(made = PyDict_New())) return NULL;
    for (Py_ssize_t cell = 0; cell < columns; cell++) {
        if (cell == key) continue;
        PyObject *value = PyBytes_FromStringAndSize((const char *)cells[cell].data, cells[cell].size);
        int failed = !value || PyDict_SetItem(made, PyList_GetItem(names, cell), value);
        Py_XDECREF(value);
        if (failed) return Py_DECREF(made), NULL;
    }
    return made;
}

PyDoc_STRVAR(joined_doc, "joined(file, rows, found, data, samples, mark, names, key)\n--\n\n"
"For each sample of a `Batch` (api/values.py) the row of a CSV file with its key: two lists, of the numbers of the rows and\n"
"of dicts with their other cells, None where there is none; or None if a row is not plain.\n\n"
"`file` is a descriptor, `rows` those of `table` in their order, and `found` the number of the first with the hash of each\n"
"key, as `find` returns it; `data` and `samples` are the data and the rows of the batch. `names` is a list of the columns.");

static PyObject *joined(PyObject *module, PyObject *args) {
    const char *rows, *found, *samples, *data, *mark;
    Py_ssize_t rows_size, found_size, samples_size, data_size, mark_size;
    PyObject *names, *numbers = NULL, *entries = NULL, *result = NULL;
    int file, key, odd = 0;
    if (!PyArg_ParseTuple(args, "iy#y#y#y#y#O!i", &file, &rows, &rows_size, &found, &found_size, &data, &data_size, &samples,
                          &samples_size, &mark, &mark_size, &PyList_Type, &names, &key)) return NULL;
    Py_ssize_t count = samples_size / (Py_ssize_t)sizeof(Row), last = rows_size / 32, columns = PyList_Size(names);
    if (mark_size != 1 || found_size != 8 * count || key < 0 || key >= columns || columns > MOST_CELLS) Py_RETURN_NONE;
    if (!(numbers = PyList_New(0)) || !(entries = PyList_New(0))) goto done;
    for (Py_ssize_t sample = 0; sample < count; sample++) {
        Row row;
        int64_t number;
        uint64_t place[4], hash = 0;
        PyObject *made = NULL, *at = NULL;
        memcpy(&row, samples + sample * (Py_ssize_t)sizeof row, sizeof row);
        memcpy(&number, found + 8 * sample, 8);
        if (row.key < 0 || row.key_size < 0 || row.key_size > data_size - row.key || number >= last) {
            PyErr_Format(PyExc_ValueError, "no such samples or rows");
            goto done;
        }
        for (; number >= 0 && number < last && !made; number++) {
            memcpy(place, rows + 32 * number, sizeof place);
            if (hash && place[0] != hash) break;
            hash = place[0];
            made = read_row(file, place, *mark, names, key, (Text){(bytes_t)data + row.key, (Py_ssize_t)row.key_size}, &odd);
            if (odd) result = Py_NewRef(Py_None);
            if (odd || PyErr_Occurred()) goto done;
        }
        at = made ? PyLong_FromLongLong(number - 1) : Py_NewRef(Py_None);
        made = made ? made : Py_NewRef(Py_None);
        int failed = !at || PyList_Append(numbers, at) || PyList_Append(entries, made);
        Py_XDECREF(at);
        Py_DECREF(made);
        if (failed) goto done;
    }
    result = Py_BuildValue("OO", numbers, entries);
done:
    Py_XDECREF(numbers);
    Py_XDECREF(entries);
    return result;
}
