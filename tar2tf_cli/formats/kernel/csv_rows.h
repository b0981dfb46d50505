/* CSV rows that are joined to samples. Part of kernel.c, which includes it once. */

enum { MOST_CELLS = MOST_ADDED, MOST_OF_ROW = 1 << 14, WINDOW = 1 << 16, NEAR = 1 << 12 };

/* Find the end of a row, behind its LF or at the end of the data; NULL if the row may go on there, in a quoted cell. */
static const char *end_of_row(const char *at, const char *end) {
    for (int quotes = 0;;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at)), *last = stop ? stop : end;
        for (const char *quote = at; (quote = memchr(quote, '"', (size_t)(last - quote))); quote++) quotes ^= 1;
        if (!quotes) return stop ? stop + 1 : end;
        if (!stop) return NULL;
        at = stop + 1;
    }
}

/* Find the cells of a row without its end, at most `most`; returns how many there are, or -1 if Python has to do it.
   Quotes are taken out of the row, which may only be changed if there are any. */
static int find_cells(char *at, const char *end, char mark, Text *cells, int most) {
    const int quoted = memchr(at, '"', (size_t)(end - at)) != NULL;
    for (int count = 0; count < most; at++) {
        char *cell = at, *out, *stop;
        if (at < end && *at == '"') {
            cell = out = ++at;
            for (;; *out++ = *at++) { /* of two quotes, one belongs to the text */
                if (!(stop = memchr(at, '"', (size_t)(end - at)))) return -1;
                memmove(out, at, (size_t)(stop - at));
                out += stop - at;
                at = stop + 1;
                if (at == end || *at != '"') break;
            }
        } else {
            stop = memchr(at, mark, (size_t)(end - at));
            at += stop ? stop - at : end - at;
            out = at;
            if (quoted && (memchr(cell, '"', (size_t)(at - cell)) || memchr(cell, '\n', (size_t)(at - cell)))) return -1;
            if (memchr(cell, '\r', (size_t)(at - cell))) return -1;
        }
        cells[count++] = (Text){(bytes_t)cell, out - cell};
        if (at == end) return count;
        if (*at != mark) return -1;
    }
    return -1;
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
"Four unsigned 64-bit integers for each row in lines of CSV, and the size of these rows: the hash of the cell with the key,\n"
"the number of the file, the offset of the row there, and its size; blank lines are none. The last row may go on in lines\n"
"that follow. None if a row is not as `csv` writes it, has another number of cells than `columns`, or bytes that are\n"
"unusual. `offset` is that of the first line.");

static PyObject *table(PyObject *module, PyObject *args) {
    const char *lines, *mark, *at, *stop;
    char copy[MOST_OF_ROW];
    Py_ssize_t size, mark_size, used = 0, room = 0;
    int columns, key;
    unsigned long long file, offset;
    PyObject *result = NULL, *both = NULL;
    Text cells[MOST_CELLS];
    if (!PyArg_ParseTuple(args, "y#y#iiKK", &lines, &size, &mark, &mark_size, &columns, &key, &file, &offset)) return NULL;
    if (mark_size != 1 || key < 0 || key >= columns || columns > MOST_CELLS) Py_RETURN_NONE;
    if (memchr(lines, 0, (size_t)size) || !is_utf8(lines, size)) Py_RETURN_NONE;
    if (!(result = PyBytes_FromStringAndSize(NULL, room = size))) return NULL;
    for (at = lines; at < lines + size && (stop = end_of_row(at, lines + size)); at = stop) {
        const char *last = stop[-1] == '\n' ? stop - 1 : stop;
        if (last > at && last < stop && last[-1] == '\r') last--;
        if (last == at) continue;
        char *row = (char *)at; /* which is not changed without quotes */
        if (memchr(at, '"', (size_t)(last - at)))
            row = last - at > MOST_OF_ROW ? NULL : memcpy(copy, at, (size_t)(last - at));
        if (!row || find_cells(row, row + (last - at), *mark, cells, columns) != columns) {
            Py_DECREF(result);
            Py_RETURN_NONE;
        }
        uint64_t made[4] = {
            key_hash(cells[key].data, (size_t)cells[key].size), file, offset + (uint64_t)(at - lines), (uint64_t)(stop - at)};
        if (room - used < (Py_ssize_t)sizeof made && _PyBytes_Resize(&result, room = 2 * room + (Py_ssize_t)sizeof made)) return NULL;
        memcpy(PyBytes_AsString(result) + used, made, sizeof made);
        used += (Py_ssize_t)sizeof made;
    }
    if (!_PyBytes_Resize(&result, used)) both = Py_BuildValue("On", result, (Py_ssize_t)(at - lines));
    Py_XDECREF(result);
    return both;
}

/* A file of rows, of which more than one row is read at once while each begins where the one before ended. */
typedef struct {
    int file;
    uint64_t start, size, end; /* of what was read, and the end of the last row */
    char row[MOST_OF_ROW], window[WINDOW];
} RowFile;

/* Read so many bytes into `row`; 0 if they cannot be read. */
static int read_row(RowFile *rows, uint64_t offset, uint64_t size) {
    const int is_next = offset >= rows->end && offset - rows->end < NEAR;
    if (size > MOST_OF_ROW) return 0;
    rows->end = offset + size;
    if (offset < rows->start || offset - rows->start > rows->size || size > rows->size - (offset - rows->start)) {
        if (!is_next) return pread(rows->file, rows->row, (size_t)size, (off_t)offset) == (ssize_t)size;
        ssize_t found = pread(rows->file, rows->window, WINDOW, (off_t)offset);
        rows->start = offset;
        rows->size = found < 0 ? 0 : (uint64_t)found;
        if (rows->size < size) return 0;
    }
    memcpy(rows->row, rows->window + (offset - rows->start), (size_t)size);
    return 1;
}

/* Find the cells of the row at a place of a file, as entries: how many there are but that of the key, -1 if the row has
   another key, and -2 if Python has to do it. */
static int entries_at(RowFile *rows, const uint64_t *place, char mark, int columns, int key, Text wanted, Entry *entries) {
    Text cells[MOST_CELLS];
    int count = 0;
    Py_ssize_t size = (Py_ssize_t)place[3];
    if (!read_row(rows, place[2], place[3])) return -2;
    while (size && (rows->row[size - 1] == '\n' || rows->row[size - 1] == '\r')) size--;
    if (!is_utf8(rows->row, size) || find_cells(rows->row, rows->row + size, mark, cells, columns) != columns) return -2;
    if (compare(cells[key].data, (size_t)cells[key].size, wanted.data, (size_t)wanted.size)) return -1;
    for (int cell = 0; cell < columns; cell++) {
        if (cell == key) continue;
        entries[count].data = cells[cell].data;
        entries[count++].size = (size_t)cells[cell].size;
    }
    return count;
}

PyDoc_STRVAR(joined_doc, "joined(data, samples, places, signatures, lists, file, rows, found, mark, names, key)\n--\n\n"
"Add the cells of the row of a CSV file with the key of each sample: a list of the numbers of the rows, None where there is\n"
"none, and what `widened` returns; or None if a row is not plain, or has the name of an entry.\n\n"
"The first five arguments are those of `widened`; `file` is a descriptor, `rows` are those of `table` in their order, and\n"
"`found` has the number of the first with the hash of each key, as `find` returns it. `names` is a list of the columns.");

static PyObject *joined(PyObject *module, PyObject *args) {
    const char *rows, *found, *mark;
    Py_ssize_t rows_size, found_size, mark_size;
    PyObject *names, *numbers = NULL, *made = NULL, *result = NULL;
    Entry entries[MOST_CELLS];
    int key, columns = 0, done = 1;
    Wider *wider = PyMem_Calloc(1, sizeof *wider);
    RowFile *file = PyMem_Calloc(1, sizeof *file);
    if (!wider || !file) PyErr_NoMemory();
    else if (PyArg_ParseTuple(
            args, "Sy#y#O!O!iy#y#y#O!i", &wider->data, &wider->rows, &wider->rows_size, &wider->places, &wider->places_size,
            &PyList_Type, &wider->signatures, &PyList_Type, &wider->lists, &file->file, &rows, &rows_size, &found, &found_size,
            &mark, &mark_size, &PyList_Type, &names, &key) && begin_wider(wider)) numbers = PyList_New(0);
    if (!numbers) goto done;
    const Py_ssize_t count = wider->rows_size / (Py_ssize_t)sizeof(Row), last = rows_size / 32, most = PyList_Size(names);
    if (found_size != 8 * count || mark_size != 1 || key < 0 || key >= most) {
        PyErr_Format(PyExc_ValueError, "no such samples or columns");
        goto done;
    }
    file->end = (uint64_t)1 << 62;
    done = most <= MOST_CELLS;
    for (Py_ssize_t column = 0; done > 0 && column < most; column++)
        if (column != key) done = name_entry(PyList_GetItem(names, column), &entries[columns++]);
    for (Py_ssize_t sample = 0; done > 0 && sample < count; sample++) {
        int64_t number;
        uint64_t place[4], hash = 0;
        int cells = -1;
        Text wanted;
        memcpy(&number, found + 8 * sample, 8);
        if (!find_key_of(wider, sample, &wanted) || number >= last) {
            PyErr_Format(PyExc_ValueError, "no such samples or rows");
            goto done;
        }
        for (; cells == -1 && number >= 0 && number < last; number++) {
            memcpy(place, rows + 32 * number, sizeof place);
            if (hash && place[0] != hash) break;
            hash = place[0];
            cells = entries_at(file, place, *mark, (int)most, key, wanted, entries);
        }
        if (cells == -2) done = 0;
        PyObject *at = done > 0 && cells >= 0 ? PyLong_FromLongLong(number - 1) : Py_NewRef(Py_None);
        if (!at || PyList_Append(numbers, at)) done = -1;
        Py_XDECREF(at);
        if (done > 0) done = add_entries(wider, sample, entries, cells < 0 ? 0 : cells);
    }
    made = end_wider(wider, done > 0);
    result = made ? Py_BuildValue("OO", numbers, made) : PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
done:
    if (!result && wider) end_wider(wider, 0);
    PyMem_Free(wider);
    PyMem_Free(file);
    Py_XDECREF(numbers);
    Py_XDECREF(made);
    return result;
}
