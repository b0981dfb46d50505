/* Adding entries to the samples of a batch, such as joined ones. Part of kernel.c, which includes it once. */

enum { MOST_NEW_BYTES = 1 << 23 };

/* Entries added to the samples of one signature: their names as in a `Signature`, and the tag of each one's list. */
typedef struct {
    int64_t kind;
    char names[MOST_NAMES];
    int tags[MOST_ADDED], count;
    size_t size;
} Addition;

/* A batch, and the samples, entries and bytes of the wider batch made from it. */
typedef struct {
    PyObject *data, *signatures, *lists;
    const char *rows, *places;
    Py_ssize_t rows_size, places_size, data_size;
    Row *made;
    Place *entries;
    char *bytes;
    Py_ssize_t entries_made, entries_room, bytes_made, bytes_room;
    int kinds;
    Addition additions[MOST_SIGNATURES];
} Wider;

static int count_names(const char *names, Py_ssize_t size) {
    int count = 0;
    for (Py_ssize_t at = 0; at < size; at++) count += !names[at];
    return count;
}

/* Find the row of a sample, and the names and number of its entries; 0 for an invalid row. */
static int find_row(const Wider *wider, Py_ssize_t number, Row *row, char **names, Py_ssize_t *size, int *count) {
    memcpy(row, wider->rows + number * (Py_ssize_t)sizeof *row, sizeof *row);
    PyObject *signature = row->kind < 0 ? NULL : PyList_GetItem(wider->signatures, (Py_ssize_t)row->kind);
    if (!signature || PyBytes_AsStringAndSize(signature, names, size) || (*size && (*names)[*size - 1])) return PyErr_Clear(), 0;
    *count = count_names(*names, *size);
    return row->first >= 0 && row->first <= wider->places_size / (Py_ssize_t)sizeof(Place) - *count;
}

/* Find the key of a sample; 0 for an invalid one. */
static int find_key_of(const Wider *wider, Py_ssize_t number, Text *key) {
    Row row;
    memcpy(&row, wider->rows + number * (Py_ssize_t)sizeof row, sizeof row);
    if (row.key < 0 || row.key_size < 0 || row.key > wider->data_size || row.key_size > wider->data_size - row.key) return 0;
    *key = (Text){(bytes_t)PyBytes_AsString(wider->data) + row.key, (ptrdiff_t)row.key_size};
    return 1;
}

/* Whether the key or an entry has this name. */
static int is_taken(const char *names, Py_ssize_t size, const void *name, size_t name_size) {
    if (!compare(name, name_size, "__key__", 7)) return 1;
    for (const char *at = names; at < names + size; at += strlen(at) + 1)
        if (!compare(at, strlen(at), name, name_size)) return 1;
    return 0;
}

/* Return the number of an addition to samples of a signature; -1 if Python has to add the entries. */
static int addition_of(Wider *wider, const Row *row, const char *names, Py_ssize_t size, const Entry *added, int count) {
    Addition wanted = {.kind = row->kind, .count = count};
    if (count > MOST_ADDED) return -1;
    for (int number = 0; number < count; number++) {
        const Entry *entry = &added[number];
        if (wanted.size + entry->name_size + 1 > MOST_NAMES) return -1;
        memcpy(wanted.names + wanted.size, entry->name, entry->name_size);
        wanted.size += entry->name_size + 1;
        wanted.tags[number] = entry->tag;
    }
    for (int known = 0; known < wider->kinds; known++) {
        const Addition *other = &wider->additions[known];
        if (other->kind == wanted.kind && other->count == count && other->size == wanted.size &&
            !memcmp(other->names, wanted.names, wanted.size) && !memcmp(other->tags, wanted.tags, (size_t)count * sizeof(int)))
            return known;
    }
    if (wider->kinds == MOST_SIGNATURES) return -1;
    for (int number = 0; number < count; number++) {
        const Entry *entry = &added[number];
        if (!entry->name_size || memchr(entry->name, 0, entry->name_size)) return -1;
        if (is_taken(names, size, entry->name, entry->name_size)) return -1;
    }
    wider->additions[wider->kinds] = wanted;
    return wider->kinds++;
}

/* Ensure room for this many more entries and bytes; 0 without memory. */
static int give_room(Wider *wider, Py_ssize_t entries, size_t bytes) {
    if (wider->entries_made + entries > wider->entries_room) {
        Py_ssize_t room = 2 * (wider->entries_made + entries) + 1024;
        Place *moved = PyMem_Realloc(wider->entries, (size_t)room * sizeof *moved);
        if (!moved) return PyErr_NoMemory(), 0;
        wider->entries = moved;
        wider->entries_room = room;
    }
    if (wider->bytes_made + (Py_ssize_t)bytes > wider->bytes_room) {
        Py_ssize_t room = 2 * (wider->bytes_made + (Py_ssize_t)bytes) + 4096;
        char *moved = PyMem_Realloc(wider->bytes, (size_t)room);
        if (!moved) return PyErr_NoMemory(), 0;
        wider->bytes = moved;
        wider->bytes_room = room;
    }
    return 1;
}

/* Add a sample with additional entries to the new batch; 0 if Python has to do it, and -1 for an error. */
static int add_entries(Wider *wider, Py_ssize_t number, const Entry *added, int count) {
    Row row;
    char *names;
    Py_ssize_t size;
    int before, kind;
    size_t bytes = 0;
    if (!find_row(wider, number, &row, &names, &size, &before))
        return PyErr_Format(PyExc_ValueError, "the rows are not those of samples in these bytes"), -1;
    if (before + count > MOST_ALL || (kind = addition_of(wider, &row, names, size, added, count)) < 0) return 0;
    for (int entry = 0; entry < count; entry++) bytes += added[entry].size;
    if (bytes > MOST_NEW_BYTES || wider->bytes_made + (Py_ssize_t)bytes > MOST_NEW_BYTES) return 0;
    if (!give_room(wider, before + count, bytes)) return -1;
    memcpy(wider->entries + wider->entries_made, wider->places + row.first * (int64_t)sizeof(Place), (size_t)before * sizeof(Place));
    row.first = wider->entries_made;
    row.kind = kind;
    wider->made[number] = row;
    wider->entries_made += before;
    for (int entry = 0; entry < count; entry++) {
        Place place = {wider->data_size + wider->bytes_made, (int64_t)added[entry].size};
        if (place.size) memcpy(wider->bytes + wider->bytes_made, added[entry].data, added[entry].size);
        wider->bytes_made += (Py_ssize_t)added[entry].size;
        wider->entries[wider->entries_made++] = place;
    }
    return 1;
}

/* Append the signature of samples with an addition, and the lists of their entries if the batch has any. */
static int append_addition(const Wider *wider, const Addition *addition, PyObject *signatures, PyObject *lists) {
    PyObject *before = PyList_GetItem(wider->signatures, (Py_ssize_t)addition->kind), *kinds = NULL;
    PyObject *more = PyBytes_FromStringAndSize(addition->names, (Py_ssize_t)addition->size);
    PyObject *names = more ? PySequence_Concat(before, more) : NULL;
    int failed = !names || PyList_Append(signatures, names);
    if (!failed && lists) {
        const int known = PyList_Size(wider->lists) > 0;
        const Py_ssize_t count = count_names(PyBytes_AsString(before), PyBytes_Size(before));
        kinds = PyBytes_FromStringAndSize(NULL, 16 * (count + addition->count));
        PyObject *old = known ? PyList_GetItem(wider->lists, (Py_ssize_t)addition->kind) : NULL;
        if (known && (!old || PyBytes_Size(old) != 16 * count)) failed = 1;
        int64_t *out = failed || !kinds ? NULL : (int64_t *)(void *)PyBytes_AsString(kinds);
        if (out && known) memcpy(out, PyBytes_AsString(old), (size_t)(16 * count));
        for (Py_ssize_t entry = known ? count : 0; out && entry < count + addition->count; entry++) {
            out[2 * entry] = entry < count ? DELIMITED : addition->tags[entry - count];
            out[2 * entry + 1] = 1;
        }
        failed = !out || PyList_Append(lists, kinds);
    }
    Py_XDECREF(more);
    Py_XDECREF(names);
    Py_XDECREF(kinds);
    return failed;
}

/* Begin a batch of samples with additional entries; 0 without memory, as an error. */
static int begin_wider(Wider *wider) {
    wider->data_size = PyBytes_Size(wider->data);
    wider->made = PyMem_Malloc((size_t)wider->rows_size + 1);
    return wider->made || (PyErr_NoMemory(), 0);
}

/* Return the data, rows, places, signatures and lists of the new batch, and free the buffers that hold them. */
static PyObject *end_wider(Wider *wider, int done) {
    PyObject *data = NULL, *signatures = NULL, *lists = NULL, *result = NULL;
    int numbers = done && PyList_Size(wider->lists) > 0;
    if (!done) goto done;
    for (int kind = 0; kind < wider->kinds; kind++)
        for (int entry = 0; entry < wider->additions[kind].count; entry++)
            numbers = numbers || wider->additions[kind].tags[entry] != DELIMITED;
    if (!(signatures = PyList_New(0)) || !(lists = PyList_New(0))) goto done;
    for (int kind = 0; kind < wider->kinds; kind++)
        if (append_addition(wider, &wider->additions[kind], signatures, numbers ? lists : NULL)) goto done;
    if (!(data = PyBytes_FromStringAndSize(NULL, wider->data_size + wider->bytes_made))) goto done;
    memcpy(PyBytes_AsString(data), PyBytes_AsString(wider->data), (size_t)wider->data_size);
    if (wider->bytes_made) memcpy(PyBytes_AsString(data) + wider->data_size, wider->bytes, (size_t)wider->bytes_made);
    result = Py_BuildValue(
        "Oy#y#OO", data, wider->made, wider->rows_size, wider->entries ? (char *)wider->entries : "",
        wider->entries_made * (Py_ssize_t)sizeof(Place), signatures, lists);
done:
    PyMem_Free(wider->made);
    PyMem_Free(wider->entries);
    PyMem_Free(wider->bytes);
    wider->made = NULL;
    wider->entries = NULL;
    wider->bytes = NULL;
    Py_XDECREF(data);
    Py_XDECREF(signatures);
    Py_XDECREF(lists);
    return result;
}

/* Set the name of a new entry; 0 if Python has to do it. */
static int name_entry(PyObject *name, Entry *entry) {
    Py_ssize_t size;
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8AndSize(name, &size) : NULL;
    if (!text) return PyErr_Clear(), 0;
    *entry = (Entry){text, NULL, (size_t)size, 0, DELIMITED, {0}, 0};
    return 1;
}

/* Set an entry to a float; 0 if it is too large for a float32. */
static int give_float(double value, Entry *entry) {
    float number = (float)value;
    uint32_t bits;
    if (!(number <= FLT_MAX && number >= -FLT_MAX)) return 0;
    memcpy(&bits, &number, sizeof bits);
    put_number(entry->number, bits, 4);
    entry->data = entry->number;
    entry->tag = FLOATS;
    entry->size = 4;
    return 1;
}

static int give_integer(int64_t number, Entry *entry) {
    entry->data = entry->number;
    entry->tag = INTEGERS;
    entry->size = (size_t)(put_varint(entry->number, (uint64_t)number) - entry->number);
    return 1;
}

/* Set an entry to a Python value; 0 if Python has to do it. */
static int give_value(PyObject *value, Entry *entry) {
    Py_ssize_t size;
    char *data;
    if (PyBytes_Check(value)) {
        if (PyBytes_AsStringAndSize(value, &data, &size)) return PyErr_Clear(), 0;
        entry->data = data;
        entry->size = (size_t)size;
        return 1;
    }
    if (PyFloat_Check(value)) return give_float(PyFloat_AsDouble(value), entry);
    if (!PyLong_Check(value) || PyBool_Check(value)) return 0;
    int overflows;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflows);
    return !overflows && give_integer(number, entry);
}

PyDoc_STRVAR(widened_doc, "widened(data, rows, places, signatures, lists, added)\n--\n\n"
"Add entries to the samples of a batch, and return the data, rows, places, signatures and lists of the new one.\n\n"
"The first five arguments are those of the `Batch` (api/values.py). `added` is a list of dicts with bytes, integers and\n"
"floats, None for no entries. Returns None if Python has to do it, because a value has another type or a name is taken.");

static PyObject *widened(PyObject *module, PyObject *args) {
    PyObject *added, *name, *value;
    int done = 1;
    Wider *wider = PyMem_Calloc(1, sizeof *wider);
    if (!wider) return PyErr_NoMemory();
    if (!PyArg_ParseTuple(args, "Sy#y#O!O!O!", &wider->data, &wider->rows, &wider->rows_size, &wider->places, &wider->places_size,
                          &PyList_Type, &wider->signatures, &PyList_Type, &wider->lists, &PyList_Type, &added) ||
        !begin_wider(wider)) return PyMem_Free(wider), NULL;
    Entry entries[MOST_ADDED];
    for (Py_ssize_t number = 0; done > 0 && number < wider->rows_size / (Py_ssize_t)sizeof(Row); number++) {
        PyObject *joined = PyList_GetItem(added, number);
        Py_ssize_t at = 0;
        int count = 0;
        if (!joined) done = -1;
        else if (joined != Py_None && (!PyDict_Check(joined) || PyDict_Size(joined) > MOST_ADDED)) done = 0;
        while (done > 0 && joined != Py_None && PyDict_Next(joined, &at, &name, &value))
            done = name_entry(name, &entries[count]) && give_value(value, &entries[count++]);
        if (done > 0) done = add_entries(wider, number, entries, count);
    }
    PyObject *result = end_wider(wider, done > 0);
    PyMem_Free(wider);
    return result || PyErr_Occurred() ? result : Py_NewRef(Py_None);
}
