/* Batches of samples: found in tars, and written as records, members or index lines. Part of kernel.c, which
   includes it once. */

/* Position of a sample: offsets of its first header and its key in the data, and the number of its first entry. */
typedef struct {
    int64_t start, key, key_size, kind, first;
    uint64_t hash;
} Row;

typedef struct {
    int64_t data, size;
} Place;

typedef struct {
    char names[MOST_NAMES]; /* entry names in order of appearance, each followed by a NUL */
    size_t size;
} Signature;

typedef struct {
    bytes_t data;
    Row *rows;
    Place *places;
    int64_t *hashes;
    Py_ssize_t count, entries;
    int kinds, ascending; /* kinds: the number of signatures */
    Member first, last;
    Signature signatures[MOST_SIGNATURES]; /* last, as only those in use are set: zeroing all takes longer than a small tar */
} Batch;

/* Read the members of the sample that begins with `members[0]`; the first member after it becomes `next`. Returns LAST if
   the archive ends after the sample; `whole` is true if nothing follows the buffered bytes. */
static int read_sample(bytes_t end, int whole, int last_dot, int differs, Member *members, int *count, Member *next) {
    size_t total = members[0].size;
    for (*count = 1;; ++*count) {
        int found = read_member(members[*count - 1].next, end, last_dot, differs, next);
        if (found != PLAIN) return found == ODD && whole && ends_at(next->start, end) ? LAST : found;
        if (compare(members->key, members->key_size, next->key, next->key_size)) return PLAIN;
        total += next->size;
        if (*count == MOST_ENTRIES || total > MOST_BYTES) return ODD;
        for (int other = 0; other < *count; other++)
            if (!compare(members[other].name, members[other].name_size, next->name, next->name_size)) return ODD;
        members[*count] = *next;
    }
}

/* Return the number of the sample's combination of names; -1 if there is no room for it. */
static int kind_of(Batch *batch, const Member *members, int count) {
    char names[MOST_NAMES];
    size_t size = 0;
    for (int member = 0; member < count; member++) {
        if (size + members[member].name_size + 1 > MOST_NAMES) return -1;
        memcpy(names + size, members[member].name, members[member].name_size);
        size += members[member].name_size;
        names[size++] = 0;
    }
    int kind = 0;
    Signature *known = batch->signatures;
    while (kind < batch->kinds && (known->size != size || memcmp(known->names, names, size))) kind++, known++;
    if (kind == MOST_SIGNATURES) return -1;
    if (kind == batch->kinds) {
        batch->kinds++;
        memcpy(known->names, names, size);
        known->size = size;
    }
    return kind;
}

/* Add a sample; 0 if Python has to do it. */
static int add_sample(Batch *batch, const Member *members, int count) {
    PyObject *text = PyUnicode_FromStringAndSize((const char *)members->key, (Py_ssize_t)members->key_size);
    if (!text) return PyErr_Clear(), 0; /* not UTF-8 */
    int64_t hash = (int64_t)PyObject_Hash(text);
    Py_DECREF(text);
    int kind = kind_of(batch, members, count);
    if (kind < 0) return 0;
    if (!batch->count) batch->first = *members;
    else if (compare(members->key, members->key_size, batch->last.key, batch->last.key_size) <= 0) batch->ascending = 0;
    batch->last = *members;
    batch->rows[batch->count] = (Row){
        members->start - batch->data, members->key - batch->data, (int64_t)members->key_size, kind, batch->entries,
        key_hash(members->key, members->key_size)};
    for (int number = 0; number < count; number++)
        batch->places[batch->entries++] = (Place){members[number].data - batch->data, (int64_t)members[number].size};
    batch->hashes[batch->count++] = hash;
    return 1;
}

PyDoc_STRVAR(samples_doc, "samples(data, position, last_dot, differs, previous[, whole])\n--\n\n"
"Find the complete samples from a tar header at a position on, up to the first that is not plain.\n\n"
"Returns the arguments of a `Batch` (api/values.py); None if the header may belong to the same sample as `previous`, a\n"
"member's name; or, if there is no sample, whether more bytes are needed to tell. `last_dot` is the key rule; `differs` is\n"
"true if names may be split for which the two rules disagree; `whole` is true if nothing follows the data in the tar, so\n"
"that a sample before the end of the archive is complete.");

static PyObject *samples(PyObject *module, PyObject *args) {
    PyObject *data;
    Py_ssize_t position, size, previous_size;
    int last_dot, differs, found, count, whole = 0;
    char *start, *previous;
    if (!PyArg_ParseTuple(
            args, "Snppy#|p", &data, &position, &last_dot, &differs, &previous, &previous_size, &whole)) return NULL;
    if (PyBytes_AsStringAndSize(data, &start, &size)) return NULL;
    if (position < 0 || position > size) return PyErr_Format(PyExc_ValueError, "position %zd of %zd", position, size);
    bytes_t end = (bytes_t)start + size, stop = (bytes_t)start + position;
    Member members[MOST_ENTRIES], next = {.size = 0};
    found = read_member(stop, end, last_dot, differs, &next);
    if (found == PLAIN && previous_size > (Py_ssize_t)next.key_size && previous[next.key_size] == '.' &&
        !memcmp(previous, next.key, next.key_size))
        Py_RETURN_NONE;
    members[0] = next;
    if (found == PLAIN) found = read_sample(end, whole, last_dot, differs, members, &count, &next);
    if (found < PLAIN) return PyBool_FromLong(found == SHORT);
    size_t most = (size_t)(size - position) / BLOCK; /* numbers of samples and of their entries */
    Batch *batch = PyMem_Malloc(sizeof(Batch));
    char *room = PyMem_Malloc(most * (sizeof(Row) + sizeof(Place) + sizeof(int64_t)));
    PyObject *signatures = PyList_New(0), *result = NULL;
    if (!batch || !room || !signatures) goto done;
    memset(batch, 0, offsetof(Batch, signatures));
    batch->data = (bytes_t)start;
    batch->rows = (Row *)room;
    batch->places = (Place *)(batch->rows + most);
    batch->hashes = (int64_t *)(batch->places + most);
    batch->ascending = 1;
    while (found >= PLAIN && add_sample(batch, members, count)) {
        stop = next.start;
        members[0] = next;
        found = found == LAST ? ODD : read_sample(end, whole, last_dot, differs, members, &count, &next);
    }
    for (int kind = 0; kind < batch->kinds; kind++) {
        PyObject *names = PyBytes_FromStringAndSize(batch->signatures[kind].names, (Py_ssize_t)batch->signatures[kind].size);
        int failed = !names || PyList_Append(signatures, names);
        Py_XDECREF(names);
        if (failed) goto done;
    }
    result = !batch->count ? PyBool_FromLong(0) : Py_BuildValue(
        "Oy#y#y#s#s#OOn", data, batch->rows, batch->count * (Py_ssize_t)sizeof(Row), batch->places,
        batch->entries * (Py_ssize_t)sizeof(Place), batch->hashes, batch->count * 8, batch->first.key,
        (Py_ssize_t)batch->first.key_size, batch->last.key, (Py_ssize_t)batch->last.key_size,
        batch->ascending ? Py_True : Py_False, signatures, (Py_ssize_t)(stop - (bytes_t)start));
done:
    if (!result && !PyErr_Occurred()) PyErr_NoMemory();
    PyMem_Free(batch);
    PyMem_Free(room);
    Py_XDECREF(signatures);
    return result;
}

enum { RECORD, MEMBERS, CONTENT, EACH = 64 }; /* EACH: at most around a name and its data */
enum { MOST_ADDED = 64, MOST_ALL = MOST_ENTRIES + MOST_ADDED, IN_TAR = -1, FIRST_DOT, LAST_DOT };

typedef struct {
    bytes_t data;
    Py_ssize_t size, rows_size, places_size;
    const char *rows, *places;
    PyObject *signatures, *maps, *lists; /* lists: NULL if all entries are one bytes value */
    int form, rule;
} Samples;

/* Whether a range of bytes is within the data. */
static int within(const Samples *samples, int64_t offset, int64_t size) {
    return offset >= 0 && size >= 0 && offset <= samples->size && size <= samples->size - offset;
}

/* Parse text as an integer of at most 18 digits in the usual form; 0 for any other text. */
static int as_integer(Entry *entry) {
    bytes_t at = entry->data, end = at + entry->size;
    int negative = at < end && *at == '-';
    at += negative;
    if (at == end || end - at > 18) return 0;
    int64_t number = 0;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9') return 0;
        number = number * 10 + (*at - '0');
    }
    entry->size = (size_t)(put_varint(entry->number, (uint64_t)(negative ? -number : number)) - entry->number);
    return 1;
}

/* Parse text as a float32 in the usual form; 0 for any other text, or a number that is too large. */
static int as_float(Entry *entry) {
    char text[41], *stop;
    uint32_t bits;
    if (!entry->size || entry->size >= sizeof text) return 0;
    memcpy(text, entry->data, entry->size);
    text[entry->size] = 0;
    for (size_t at = 0; at < entry->size; at++)
        if (!memchr("0123456789.+-eE", text[at], 15)) return 0;
    double value = PyOS_string_to_double(text, &stop, NULL);
    if (PyErr_Occurred()) return PyErr_Clear(), 0;
    float number = (float)value;
    if (stop != text + entry->size || number > FLT_MAX || number < -FLT_MAX) return 0;
    memcpy(&bits, &number, sizeof bits);
    entry->size = (size_t)(put_number(entry->number, bits, 4) - entry->number);
    return 1;
}

/* Whether Python would change a float: it makes a signalling NaN quiet. */
static int is_signalling(const Entry *entry) {
    uint32_t bits;
    memcpy(&bits, entry->data, sizeof bits);
    return (bits & 0x7FC00000) == 0x7F800000 && bits & 0x3FFFFF;
}

/* Convert entries to features, according to a map in the format of `records`; returns their number, 0 if Python has
   to do it, and -1 if the map is invalid. */
static int map_entries(PyObject *map, Entry *entries, int count) {
    Entry made[MOST_ALL + 1];
    char *at;
    Py_ssize_t left;
    int features = 0;
    if (!map) return PyErr_Clear(), -1;
    if (map == Py_None) return 0;
    if (PyBytes_AsStringAndSize(map, &at, &left)) return PyErr_Clear(), -1;
    for (int32_t head[3]; left >= (Py_ssize_t)sizeof head; features++) { /* source, tag, length of the name */
        memcpy(head, at, sizeof head);
        left -= (Py_ssize_t)sizeof head;
        if (head[0] < 0 || head[0] >= count || head[2] < 0 || head[2] > left) return -1;
        if (features > MOST_ALL) return 0;
        Entry *entry = &made[features];
        *entry = entries[head[0]];
        entry->name = at + sizeof head;
        entry->name_size = (size_t)head[2];
        at += sizeof head + (size_t)head[2];
        left -= head[2];
        if (entry->tag == FLOATS && !entry->listed && is_signalling(entry)) return 0;
        if (entry->tag == head[1]) continue;
        if (entry->tag != DELIMITED || entry->listed) return 0;
        entry->tag = head[1];
        bytes_t end = (bytes_t)entry->data + entry->size;
        while (entry->size && memchr(" \t\r\n", end[-1], 4)) end--, entry->size--;
        if (!(entry->tag == INTEGERS ? as_integer(entry) : as_float(entry))) return 0;
        entry->data = NULL;
    }
    for (int feature = 0; feature < features; feature++) {
        entries[feature] = made[feature];
        if (!entries[feature].data) entries[feature].data = entries[feature].number;
    }
    return left ? -1 : features;
}

/* Whether a record's key can be part of member names without any tar reader changing it. */
static int names_members(const Entry *key, int last_dot) {
    bytes_t text = key->data, at = text + key->size, end = at;
    while (at > text && at[-1] != '/') at--;
    if (at == end || *text <= ' ' || *text > 126 || end[-1] <= ' ' || end[-1] > 126) return 0; /* readers strip it */
    if (!last_dot && memchr(at, '.', (size_t)(end - at))) return 0;
    return !memchr(text, 0, key->size) && !has(text, key->size, "._") && !has(text, key->size, "__meta__");
}

/* Format a number as the shortest text that is parsed to the same number, as NumPy does; 0 if Python has to do it. */
static int as_text(Entry *entry) {
    uint64_t integer;
    uint32_t bits;
    float number;
    double value;
    bytes_t data = entry->data;
    char *out = (char *)entry->number, *text;
    int digits = 0;
    entry->data = out;
    if (entry->tag == INTEGERS) {
        if (!read_number(data, data + entry->size, &integer)) return 0;
        entry->size = (size_t)PyOS_snprintf(out, sizeof entry->number, "%lld", (long long)integer);
        return 1;
    }
    memcpy(&bits, data, sizeof bits);
    memcpy(&number, &bits, sizeof number);
    float size = number < 0 ? -number : number;
    if (bits << 1 && !(size >= 1e-4F && size < 1e6F)) return 0; /* some versions of NumPy write an exponent */
    do {
        PyOS_snprintf(out, sizeof entry->number, "%.*e", digits, (double)number);
        value = PyOS_string_to_double(out, NULL, NULL);
    } while ((float)value != number && ++digits < 9);
    if (!(bits & 0x7FFFFF) && bits << 1 && (digits > 6 || value != (double)number)) return 0; /* the neighbours of a power of two are at unequal distances */
    if (!(text = PyOS_double_to_string(value, 'r', 0, Py_DTSF_ADD_DOT_0, NULL))) return PyErr_Clear(), 0;
    entry->size = strlen(text);
    if (entry->size < sizeof entry->number) memcpy(out, text, entry->size);
    PyMem_Free(text);
    return entry->size < sizeof entry->number;
}

/* Set the kind of a record's entry from `lists`: the tag of its list, and whether it is the whole list or one value; 0 if
   there is no such entry. */
static int give_kind(const Samples *samples, const Row *row, int number, Entry *entry) {
    PyObject *kinds = PyList_GetItem(samples->lists, (Py_ssize_t)row->kind);
    int64_t kind;
    char *data;
    Py_ssize_t size;
    if (!kinds || PyBytes_AsStringAndSize(kinds, &data, &size)) return PyErr_Clear(), 0;
    if (size < 16 * (number + 1)) return 0;
    memcpy(&kind, data + 16 * number, sizeof kind);
    entry->tag = kind & 0xFF;
    entry->listed = kind > 0xFF;
    return entry->tag != FLOATS || entry->listed || entry->size == 4;
}

/* Whether readers decode an entry as an npy file because of its name. */
static int is_npy(const Entry *entry) {
    size_t size = entry->name_size;
    return size >= 3 && !memcmp((const char *)entry->name + size - 3, "npy", 3) && (size == 3 || ((const char *)entry->name)[size - 4] == '.');
}

/* Convert the entries after the key to the content of tar members, numbers to text; 0 if Python has to do it. */
static int as_members(Entry *entries, int count) {
    for (Entry *entry = entries + 1; entry < entries + count; entry++) {
        if (entries->size + 1 + entry->name_size >= 100 || entry->listed) return 0;
        for (size_t letter = 0; letter < entry->name_size; letter++)
            if (((bytes_t)entry->name)[letter] > 126) return 0;
        if (entry->tag != DELIMITED && (is_npy(entry) || !as_text(entry))) return 0;
    }
    return 1;
}

/* Collect the key and entries of a sample; returns their number, 0 if Python has to do it, and -1 if there is no
   such sample. */
static int read_entries(const Samples *samples, Py_ssize_t number, Entry *entries) {
    Row row;
    Place place;
    char *names;
    Py_ssize_t left;
    int count = 0;
    memcpy(&row, samples->rows + number * (Py_ssize_t)sizeof row, sizeof row);
    if (!within(samples, row.key, row.key_size) || row.kind < 0 || row.first < 0) return -1;
    PyObject *signature = PyList_GetItem(samples->signatures, (Py_ssize_t)row.kind);
    if (!signature || PyBytes_AsStringAndSize(signature, &names, &left)) return PyErr_Clear(), -1;
    entries[count++] = (Entry){"__key__", samples->data + row.key, 7, (size_t)row.key_size, DELIMITED, {0}, 0};
    if (samples->form == MEMBERS && samples->rule != IN_TAR && !names_members(entries, samples->rule == LAST_DOT)) return 0;
    for (int64_t entry = row.first; left > 0; entry++) {
        const char *stop = memchr(names, 0, (size_t)left);
        if (!stop || count > MOST_ALL || entry >= samples->places_size / (Py_ssize_t)sizeof place) return -1;
        memcpy(&place, samples->places + entry * (int64_t)sizeof place, sizeof place);
        if (!within(samples, place.data, place.size)) return -1;
        entries[count++] =
            (Entry){names, samples->data + place.data, (size_t)(stop - names), (size_t)place.size, DELIMITED, {0}, 0};
        if (samples->lists && !give_kind(samples, &row, count - 2, &entries[count - 1])) return -1;
        left -= stop + 1 - names;
        names += stop + 1 - names;
    }
    if (samples->maps != Py_None) count = map_entries(PyList_GetItem(samples->maps, (Py_ssize_t)row.kind), entries, count);
    return count > 0 && samples->form == MEMBERS && !as_members(entries, count) ? 0 : count;
}

/* Write the output for a sample. */
static unsigned char *put_sample(unsigned char *out, const Entry *entries, int count, int form) {
    if (form == MEMBERS) {
        for (int number = 1; number < count; number++) out = put_member(out, entries, &entries[number]);
        return out;
    }
    const Entry *sorted[MOST_ALL + 1];
    for (int number = 0; number < count; number++) {
        const Entry *entry = &entries[number];
        int place = number;
        for (; place; place--) {
            const Entry *before = sorted[place - 1];
            if (compare(entry->name, entry->name_size, before->name, before->name_size) >= 0) break;
            sorted[place] = before;
        }
        sorted[place] = entry;
    }
    return form == RECORD ? put_record(out, sorted, count) : put_content(out, sorted, count, entries);
}

/* Return the maximum size of the output for an entry. */
static size_t room_of(const Entry *entry, int form) {
    return form == MEMBERS ? BLOCK + (entry->size + BLOCK - 1) / BLOCK * BLOCK : EACH + entry->name_size + entry->size;
}

PyDoc_STRVAR(records_doc, "records(data, rows, places, signatures, form[, maps, lists, rule])\n--\n\n"
"Write the samples of a batch as framed records; with form 1 as members of a tar, with form 2 as the bytes that digests\n"
"are computed from.\n\n"
"The first four arguments are those of the `Batch` (api/values.py). `maps` is None, or has the features of each signature's\n"
"samples, None if Python has to make them: for each the number of its entry (0 for the key), the tag of its list and the\n"
"length of its name, as 32-bit integers, and the name; text is parsed for lists of numbers. For members, the first feature\n"
"is the key. `lists` is that of the batch, None if all entries are bytes; `rule` is the key rule by which members are named:\n"
"0 for the first dot, 1 for the last, or -1 if the samples come from a tar with these names. Returns the output, and its\n"
"size for each sample, as unsigned 64-bit integers; None if an entry is not plain.");

static PyObject *records(PyObject *module, PyObject *args) {
    PyObject *data, *made = NULL, *result = NULL;
    PyObject *lists = Py_None;
    Samples all = {.maps = Py_None, .rule = IN_TAR};
    char *start;
    if (!PyArg_ParseTuple(
            args, "Sy#y#O!i|OOi", &data, &all.rows, &all.rows_size, &all.places, &all.places_size, &PyList_Type,
            &all.signatures, &all.form, &all.maps, &lists, &all.rule)) return NULL;
    if (PyBytes_AsStringAndSize(data, &start, &all.size)) return NULL;
    if ((all.maps != Py_None && !PyList_Check(all.maps)) || (lists != Py_None && !PyList_Check(lists)))
        return PyErr_Format(PyExc_TypeError, "a list, or None");
    all.lists = lists == Py_None ? NULL : lists;
    all.data = (bytes_t)start;
    Entry entries[MOST_ALL + 1];
    Py_ssize_t count = all.rows_size / (Py_ssize_t)sizeof(Row), used = 0, room = all.size + EACH;
    uint64_t *sizes = PyMem_Malloc((size_t)count * 8 + 1);
    if (!sizes || !(made = PyBytes_FromStringAndSize(NULL, room))) goto done;
    for (Py_ssize_t number = 0; number < count; number++) {
        int entry_count = read_entries(&all, number, entries);
        if (entry_count == 1 && all.form == MEMBERS) entry_count = 0; /* a sample with only a key */
        if (entry_count < 0) PyErr_Format(PyExc_ValueError, "the rows are not those of samples in these bytes");
        if (!entry_count) result = Py_NewRef(Py_None);
        if (entry_count <= 0) goto done;
        size_t needed = 0;
        for (int entry = 0; entry < entry_count; entry++) needed += room_of(&entries[entry], all.form);
        if (needed > (size_t)(room - used) && _PyBytes_Resize(&made, room = 2 * (used + (Py_ssize_t)needed))) goto done;
        unsigned char *out = (unsigned char *)PyBytes_AsString(made) + used;
        sizes[number] = (uint64_t)(put_sample(out, entries, entry_count, all.form) - out);
        used += (Py_ssize_t)sizes[number];
    }
    if (!_PyBytes_Resize(&made, used)) result = Py_BuildValue("Oy#", made, sizes, count * 8);
done:
    if (!result && !PyErr_Occurred()) PyErr_NoMemory();
    PyMem_Free(sizes);
    Py_XDECREF(made);
    return result;
}

/* Write an entry's part of a line of DALI's index; NULL if the member's name may have a blank. */
static unsigned char *put_in_line(unsigned char *out, const Samples *samples, const Entry *key, const Entry *entry, Py_ssize_t begin) {
    const Py_ssize_t position = (bytes_t)entry->data - samples->data;
    if (position < BLOCK) return NULL;
    bytes_t name = samples->data + position - BLOCK;
    size_t size = 0, extension = key->size + 1;
    for (; size < 100 && name[size]; size++)
        if (name[size] <= ' ' || name[size] > 126) return NULL;
    if (size <= extension) return NULL;
    memcpy(out, name + extension, size - extension);
    out += size - extension;
    *out++ = ' ';
    out = put_decimal(out, (uint64_t)(begin + position));
    *out++ = ' ';
    out = put_decimal(out, entry->size);
    *out++ = ' ';
    memcpy(out, name, size);
    return out + size;
}

PyDoc_STRVAR(index_lines_doc, "index_lines(data, rows, places, signatures, begin)\n--\n\n"
"Return the lines of samples in an index file of DALI; None if the name of a member may have a blank.\n\n"
"The first four arguments are those of the `Batch` (api/values.py); `begin` is the offset of the data in the tar.");

static PyObject *index_lines(PyObject *module, PyObject *args) {
    PyObject *data, *made = NULL;
    Samples all = {.maps = Py_None};
    Py_ssize_t begin, used = 0, room = 0;
    char *start;
    if (!PyArg_ParseTuple(
            args, "Sy#y#O!n", &data, &all.rows, &all.rows_size, &all.places, &all.places_size, &PyList_Type, &all.signatures,
            &begin)) return NULL;
    if (PyBytes_AsStringAndSize(data, &start, &all.size)) return NULL;
    all.data = (bytes_t)start;
    Entry entries[MOST_ALL + 1];
    for (Py_ssize_t number = 0; number < all.rows_size / (Py_ssize_t)sizeof(Row); number++) {
        int count = read_entries(&all, number, entries);
        if (count < 2) {
            Py_XDECREF(made);
            return PyErr_Format(PyExc_ValueError, "the rows are not those of samples in these bytes");
        }
        Py_ssize_t needed = count * 256; /* an entry's two names, two numbers and four blanks */
        if (!made && !(made = PyBytes_FromStringAndSize(NULL, room = all.size / 8 + needed))) return NULL;
        if (needed > room - used && _PyBytes_Resize(&made, room = 2 * (used + needed))) return NULL;
        unsigned char *first = (unsigned char *)PyBytes_AsString(made), *out = first + used;
        for (int entry = 1; out && entry < count; entry++)
            if ((out = put_in_line(out, &all, entries, &entries[entry], begin))) *out++ = entry + 1 < count ? ' ' : '\n';
        if (!out) {
            Py_DECREF(made);
            Py_RETURN_NONE;
        }
        used = out - first;
    }
    return !made ? PyBytes_FromStringAndSize(NULL, 0) : _PyBytes_Resize(&made, used) ? NULL : made;
}
