/* Records as samples in batches. Part of kernel.c, which includes it once. */

enum { LISTED = 0x100 };

/* The features of a sample: their numbers in order of appearance, and the count of each one's values, -1 where
   samples differ. */
typedef struct {
    unsigned char order[MOST_ENTRIES];
    int64_t counts[MOST_ENTRIES];
    int size;
} Layout;

typedef struct {
    Known known[MOST_KNOWN];
    Feature features[MOST_KNOWN]; /* layout of the last record */
    const char *forms, *stem;
    Py_ssize_t stem_size;
    int names, key, kinds;
    Row *rows;
    Place *places;
    char *keys; /* generated keys */
    Py_ssize_t count, entries, keys_size, most;
    Layout layouts[MOST_SIGNATURES];
} Found;

/* Whether packed integers are encoded as protobuf does, in as few bytes as possible. */
static int are_shortest(bytes_t at, bytes_t end) {
    unsigned char made[10];
    uint64_t number;
    for (bytes_t stop; at < end; at = stop) {
        if (!(stop = read_number(at, end, &number))) return 0;
        if (put_varint(made, number) - made != stop - at || memcmp(made, at, (size_t)(stop - at))) return 0;
    }
    return 1;
}

/* Find the only value of a feature, or its whole list; 0 if protobuf would encode it differently. */
static int find_value(const Feature *feature, int is_list, bytes_t data, Place *place) {
    bytes_t at = feature->list, end = feature->end, stop = at, value = at;
    if (is_list) *place = (Place){at - data, end - at};
    for (; stop < end; at = stop) {
        if (!(value = content(at, end, DELIMITED, &stop)) || value - at != 1 + (Py_ssize_t)varint_size((uint64_t)(stop - value))) return 0;
        if (feature->kind != DELIMITED && value == stop) return 0;
        if (feature->kind == INTEGERS && !are_shortest(value, stop)) return 0;
    }
    if (!is_list) *place = (Place){value - data, stop - value};
    return 1;
}

/* Return the number of the last record's layout, given the bits of its features; -1 if there is no room for it. */
static int layout_of(Found *found, uint64_t bits) {
    unsigned char order[MOST_ENTRIES];
    int size = 0, kind = 0;
    for (int number = 0; number < found->names; number++) {
        if (!(bits >> number & 1) || found->forms[number] == '-') continue;
        if (size == MOST_ENTRIES) return -1;
        int place = size++;
        for (; place && found->features[order[place - 1]].name > found->features[number].name; place--)
            order[place] = order[place - 1];
        order[place] = (unsigned char)number;
    }
    Layout *layout = found->layouts;
    while (kind < found->kinds && (layout->size != size || memcmp(layout->order, order, (size_t)size))) kind++, layout++;
    if (kind == MOST_SIGNATURES) return -1;
    if (kind < found->kinds) return kind;
    found->kinds++;
    layout->size = size;
    memcpy(layout->order, order, (size_t)size);
    for (int entry = 0; entry < size; entry++) layout->counts[entry] = INT64_MIN;
    return kind;
}

/* Find the key of the last record, or generate one in `keys`, with its offset there; 0 if Python has to do it. */
static int find_key(Found *found, bytes_t data, int64_t number, Row *row) {
    Place place;
    uint64_t value;
    if (found->key >= 0) {
        const Feature *feature = &found->features[found->key];
        if (!find_value(feature, 0, data, &place)) return 0;
        bytes_t key = data + place.data, end = key + place.size;
        if (feature->kind == DELIMITED) {
            row->key = place.data;
            row->key_size = place.size;
            row->hash = key_hash(key, (size_t)place.size);
            while (key < end && *key < 0x80) key++;
            if (key == end) return 1;
            PyObject *text = PyUnicode_FromStringAndSize((const char *)data + place.data, (Py_ssize_t)place.size);
            if (!text) return PyErr_Clear(), 0; /* not UTF-8 */
            Py_DECREF(text);
            return 1;
        }
        if (!read_number(key, end, &value)) return 0;
        number = (int64_t)value;
    }
    char *out = found->keys + found->keys_size;
    memcpy(out, found->stem, (size_t)found->stem_size);
    const char *form = found->key < 0 ? "%06lld" : "%lld";
    row->key = found->keys_size;
    row->key_size = found->stem_size + PyOS_snprintf(out + found->stem_size, EACH, form, (long long)number);
    row->hash = key_hash((bytes_t)out, (size_t)row->key_size);
    found->keys_size += (Py_ssize_t)row->key_size;
    return 1;
}

/* Add a record that begins at `start`; 0 if Python has to do it. */
static int add_record(Found *found, bytes_t data, bytes_t start, int64_t number, uint64_t bits) {
    Row row = {.start = start - data, .first = found->entries};
    if (found->key >= 0 && !(bits >> found->key & 1)) return 0;
    int kind = layout_of(found, bits);
    if (kind < 0) return 0;
    Layout *layout = &found->layouts[kind];
    for (int entry = 0; entry < layout->size; entry++) {
        const Feature *feature = &found->features[layout->order[entry]];
        int is_list = found->forms[layout->order[entry]] == 'l';
        if (!find_value(feature, is_list, data, &found->places[found->entries + entry])) return 0;
    }
    row.kind = kind;
    if (!find_key(found, data, number, &row)) return 0;
    for (int entry = 0; entry < layout->size; entry++) {
        int64_t size, count = count_values(&found->features[layout->order[entry]], &size), before = layout->counts[entry];
        layout->counts[entry] = before == INT64_MIN || before == count ? count : -1;
    }
    found->rows[found->count++] = row;
    found->entries += layout->size;
    return 1;
}

/* The names of the entries of a layout, and the tag of the list and the number of values of each. */
static int append_layout(const Found *found, const Layout *layout, PyObject *signatures, PyObject *lists) {
    Py_ssize_t size = 0;
    for (int entry = 0; entry < layout->size; entry++) size += found->known[layout->order[entry]].name_size + 1;
    PyObject *names = PyBytes_FromStringAndSize(NULL, size), *kinds = PyBytes_FromStringAndSize(NULL, 16 * layout->size);
    int failed = !names || !kinds;
    char *out = failed ? NULL : PyBytes_AsString(names), *pair = failed ? NULL : PyBytes_AsString(kinds);
    for (int entry = 0; !failed && entry < layout->size; entry++, pair += 16) {
        int number = layout->order[entry], name_size = found->known[number].name_size;
        memcpy(out, found->known[number].name, (size_t)name_size);
        out[name_size] = 0;
        out += name_size + 1;
        int64_t kind[2] = {found->known[number].kind | (found->forms[number] == 'l' ? LISTED : 0), layout->counts[entry]};
        memcpy(pair, kind, sizeof kind);
    }
    failed = failed || PyList_Append(signatures, names) || PyList_Append(lists, kinds);
    Py_XDECREF(names);
    Py_XDECREF(kinds);
    return failed;
}

PyDoc_STRVAR(parsed_doc, "parsed(records, position, names, forms, key, stem, number, most)\n--\n\n"
"Find the samples in framed records from a position on, up to the first that is not plain: an example of the usual form,\n"
"which protobuf would write with the same bytes. The caller has checked the CRCs.\n\n"
"`names` is the argument of `examples`, with a kind for each; `forms` has a letter for each: v for an entry of one value, l\n"
"for a list, and - for none. `key` is the number of the feature with the key; if it is -1, keys are generated from a stem\n"
"and the number of the record, from `number` on. Returns the arguments of a `Batch` (api/values.py) of about `most` samples\n"
"or entries, with generated keys at the end of its data; None if the first record is not plain.");

static PyObject *parsed(PyObject *module, PyObject *args) {
    PyObject *records, *data = NULL, *result = NULL, *signatures = NULL, *lists = NULL;
    const char *names, *forms, *stem;
    char *start, *room = NULL;
    Py_ssize_t position, size, names_size, forms_size, stem_size, most;
    long long number;
    int key;
    if (!PyArg_ParseTuple(args, "Sny#y#iy#Ln", &records, &position, &names, &names_size, &forms, &forms_size, &key, &stem,
                          &stem_size, &number, &most)) return NULL;
    if (PyBytes_AsStringAndSize(records, &start, &size)) return NULL;
    Found *found = PyMem_Calloc(1, sizeof(Found));
    if (!found) return PyErr_NoMemory();
    found->names = read_known((bytes_t)names, names_size, found->known);
    int right = position >= 0 && position <= size && most > 0 && most < 1 << 20 && stem_size < 1 << 12;
    right = right && found->names == forms_size && key < found->names;
    for (int each = 0; right && each < found->names; each++) {
        const Known *known = &found->known[each];
        right = known->kind == DELIMITED || known->kind == FLOATS || known->kind == INTEGERS;
        if (forms[each] == 'v' || each == key) right = right && known->count == 1;
    }
    if (!right || (key >= 0 && found->known[key].kind == FLOATS)) {
        PyErr_Format(PyExc_ValueError, "no such records, names or forms");
        goto done;
    }
    found->forms = forms;
    found->stem = key < 0 ? stem : "";
    found->stem_size = key < 0 ? stem_size : 0;
    found->key = key;
    size_t rows_room = (size_t)most * sizeof(Row), places_room = (size_t)(most + MOST_ENTRIES) * sizeof(Place);
    if (!(room = PyMem_Malloc(rows_room + places_room + (size_t)most * (size_t)(found->stem_size + EACH)))) goto done;
    found->rows = (Row *)(void *)room;
    found->places = (Place *)(void *)(room + rows_room);
    found->keys = room + rows_room + places_room;
    bytes_t begin = (bytes_t)start + position, at = begin, end = (bytes_t)start + size;
    while (end - at >= FRAMING && found->count < most && found->entries < most) {
        uint64_t bits, length = eight(at);
        if (length > (uint64_t)(end - at - FRAMING)) break;
        if (!is_usual(at + 12, at + 12 + length, found->known, found->names, &bits, found->features)) break;
        if (!add_record(found, begin, at, number + found->count, bits)) break;
        at += length + FRAMING;
    }
    if (!found->count) {
        result = Py_NewRef(Py_None);
        goto done;
    }
    if (!(signatures = PyList_New(0)) || !(lists = PyList_New(0))) goto done;
    for (int kind = 0; kind < found->kinds; kind++)
        if (append_layout(found, &found->layouts[kind], signatures, lists)) goto done;
    if (!(data = PyBytes_FromStringAndSize(NULL, at - begin + found->keys_size))) goto done;
    char *copy = PyBytes_AsString(data);
    memcpy(copy, begin, (size_t)(at - begin));
    memcpy(copy + (at - begin), found->keys, (size_t)found->keys_size);
    for (Py_ssize_t row = 0; found->keys_size && row < found->count; row++) found->rows[row].key += at - begin;
    const Row *first = found->rows, *last = first + found->count - 1;
    result = Py_BuildValue(
        "Oy#y#y#s#s#OOnnO", data, found->rows, found->count * (Py_ssize_t)sizeof(Row), found->places,
        found->entries * (Py_ssize_t)sizeof(Place), "", (Py_ssize_t)0, copy + first->key, (Py_ssize_t)first->key_size,
        copy + last->key, (Py_ssize_t)last->key_size, Py_False, signatures, (Py_ssize_t)(at - begin), (Py_ssize_t)0, lists);
done:
    if (!result && !PyErr_Occurred()) PyErr_NoMemory();
    PyMem_Free(room);
    PyMem_Free(found);
    Py_XDECREF(data);
    Py_XDECREF(signatures);
    Py_XDECREF(lists);
    return result;
}
