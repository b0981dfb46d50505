/* Framed tf.train.Examples: checks, counts, statistics, columns and rows. Part of kernel.c, which includes it once. */

enum { MOST_KINDS = 512 };

typedef struct {
    bytes_t data;
    Py_ssize_t size;
} Text;

/* The start of a range in bytes or a bytearray; NULL if the range is out of bounds, as an error. */
static bytes_t part_of(PyObject *data, Py_ssize_t position, Py_ssize_t end) {
    char *start = PyByteArray_Check(data) ? PyByteArray_AsString(data) : PyBytes_AsString(data);
    if (!start) return NULL;
    Py_ssize_t size = PyByteArray_Check(data) ? PyByteArray_Size(data) : PyBytes_Size(data);
    if (position >= 0 && position <= end && end <= size) return (bytes_t)start;
    PyErr_Format(PyExc_ValueError, "the bytes from %zd to %zd of %zd", position, end, size);
    return NULL;
}

/* The data of a framed record, given at least its framing; NULL if the record is incomplete, or a CRC is wrong. */
static bytes_t message_at(bytes_t at, bytes_t end, size_t *length) {
    bytes_t message = at + 12;
    uint64_t size = eight(at);
    if (size > (uint64_t)(end - at - FRAMING) || four_before(message) != masked(crc32c(0, at, 8))) return NULL;
    *length = (size_t)size;
    return four_before(message + size + 4) == masked(crc32c(0, message, *length)) ? message : NULL;
}

PyDoc_STRVAR(features_doc, "features(message, make)\n--\n\n"
"Return the features of an example by name; None for a message that does not have the usual form.\n\n"
"`make` is the constructor of ParsedFeature (formats/example.py), called with the fields of each.");

static PyObject *made(PyObject *make, PyObject *message, PyObject *name, const Feature *feature, Py_ssize_t count) {
    const char *kind = feature->kind == DELIMITED ? "bytes" : feature->kind == FLOATS ? "float" : "int64";
    bytes_t start = (bytes_t)PyBytes_AsString(message), stop = feature->list;
    PyObject *runs = PyList_New(0);
    if (!runs) return NULL;
    while (stop < feature->end) {
        bytes_t at = content(stop, feature->end, DELIMITED, &stop);
        PyObject *run = Py_BuildValue("nn", (Py_ssize_t)(at - start), (Py_ssize_t)(stop - start));
        int failed = !run || PyList_Append(runs, run);
        Py_XDECREF(run);
        if (failed) return Py_DECREF(runs), NULL;
    }
    return PyObject_CallFunction(make, "OOsnN", message, name, kind, count, runs);
}

static PyObject *features(PyObject *module, PyObject *args) {
    PyObject *message, *make;
    char *start;
    Py_ssize_t length;
    int64_t count = 0, size;
    if (!PyArg_ParseTuple(args, "SO", &message, &make)) return NULL;
    if (PyBytes_AsStringAndSize(message, &start, &length)) return NULL;
    Feature feature;
    bytes_t end = (bytes_t)start + length, stop, at = content((bytes_t)start, end, DELIMITED, &stop);
    if (!at || stop != end) Py_RETURN_NONE;
    PyObject *found = PyDict_New();
    for (; found && at < end; at = feature.end) {
        PyObject *name = NULL, *value = NULL;
        int usual = read_feature(at, end, &feature) && (count = count_values(&feature, &size)) >= 0;
        if (usual && !(name = PyUnicode_FromStringAndSize((const char *)feature.name, (Py_ssize_t)feature.name_size))) {
            PyErr_Clear(); /* not UTF-8 */
            usual = 0;
        }
        usual = usual && !PyDict_GetItemWithError(found, name);
        if (usual) value = made(make, message, name, &feature, (Py_ssize_t)count);
        int failed = !value || PyDict_SetItem(found, name, value);
        Py_XDECREF(name);
        Py_XDECREF(value);
        if (failed) Py_CLEAR(found);
    }
    if (!found && !PyErr_Occurred()) Py_RETURN_NONE;
    return found;
}

typedef struct {
    int64_t count, total, least, most, fewest, most_values; /* numbers of examples, sizes, and values of each */
} Sums;

typedef struct {
    Known known[MOST_KNOWN];
    uint64_t kinds[MOST_KINDS], counts[MOST_KINDS]; /* numbers of features as bits, and of examples */
    int names, kind_count;
    Sums sums[MOST_KNOWN];
    unsigned char *numbers[MOST_KNOWN]; /* position for the next example's values */
} Tally;

/* Add a feature of the usual form to the statistics: its bytes, or its numbers, which are concatenated. */
static void add_sums(Sums *sums, const Feature *feature, unsigned char **numbers) {
    int64_t size, values = count_values(feature, &size), amount = feature->kind == DELIMITED ? size : values;
    if (!sums->count || amount < sums->least) sums->least = amount;
    if (!sums->count || values < sums->fewest) sums->fewest = values;
    if (amount > sums->most) sums->most = amount;
    if (values > sums->most_values) sums->most_values = values;
    sums->count++;
    sums->total += amount;
    if (feature->kind == DELIMITED || !size || !*numbers) return;
    memcpy(*numbers, feature->end - size, (size_t)size);
    *numbers += size;
}

/* Check and count framed records as long as they are examples of known kinds; returns the end of the last one. */
static bytes_t count_examples(bytes_t at, bytes_t end, Tally *tally, int sum) {
    uint64_t found, kind = 0, most = (uint64_t)tally->kind_count, tried;
    Feature features[MOST_KNOWN];
    while (end - at >= FRAMING) {
        uint64_t length = eight(at);
        bytes_t message = at + 12;
        if (length > (uint64_t)(end - at - FRAMING) || four_before(message) != masked(crc32c(0, at, 8))) break;
        if (!is_usual(message, message + length, tally->known, tally->names, &found, sum ? features : NULL)) break;
        if (four_before(message + length + 4) != masked(crc32c(0, message, (size_t)length))) break;
        for (tried = 0; tried < most && tally->kinds[kind] != found; tried++) kind = kind + 1 < most ? kind + 1 : 0;
        if (tried == most) break;
        tally->counts[kind]++;
        for (int name = 0; sum && name < tally->names; name++)
            if (found >> name & 1) add_sums(&tally->sums[name], &features[name], &tally->numbers[name]);
        at = message + length + 4;
    }
    return at;
}

/* Read names and kinds as `examples` takes them; 0 for more than there is room for, as an error. */
static int read_tally(Tally *tally, const char *names, Py_ssize_t names_size, const char *kinds, Py_ssize_t kinds_size) {
    memset(tally, 0, sizeof *tally);
    tally->names = read_known((bytes_t)names, names_size, tally->known);
    tally->kind_count = (int)(kinds_size / 8);
    if (tally->names >= 0 && kinds_size <= (Py_ssize_t)sizeof tally->kinds) return memcpy(tally->kinds, kinds, (size_t)kinds_size), 1;
    PyErr_Format(PyExc_ValueError, "more than %d names or %d kinds", MOST_KNOWN, MOST_KINDS);
    return 0;
}

PyDoc_STRVAR(examples_doc, "examples(data, position, end, names, kinds)\n--\n\n"
"Check the records in a range of bytes or a bytearray up to the first that is not an example of the usual form.\n\n"
"Returns the position after the last one, and the number of each kind, as unsigned 64-bit integers. `names`\n"
"has, for each known feature, the tag of its list, the number of its values, their bytes (-1 for any), the length of\n"
"its name, and whether values follow, as 32-bit integers; the name; and these values, as 64-bit integers, -1 for any.\n"
"`kinds` has the combinations of features, as bits of 64-bit integers.");

static PyObject *examples(PyObject *module, PyObject *args) {
    PyObject *data;
    Py_ssize_t position, names_size, kinds_size, size;
    const char *names, *kinds;
    Tally tally;
    if (!PyArg_ParseTuple(args, "Onny#y#", &data, &position, &size, &names, &names_size, &kinds, &kinds_size)) return NULL;
    bytes_t start = part_of(data, position, size), end;
    if (!start || !read_tally(&tally, names, names_size, kinds, kinds_size)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    end = count_examples(start + position, start + size, &tally, 0);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("ny#", (Py_ssize_t)(end - start), tally.counts, kinds_size);
}

PyDoc_STRVAR(sums_doc, "sums(data, position, end, names, kinds)\n--\n\n"
"Check records as `examples` does, and compute statistics of their features.\n\n"
"Returns the results of `examples`; six signed 64-bit integers for each name: the number of examples with the feature;\n"
"the sum, minimum and maximum of its size in bytes, or of its number of values if they are numbers; and the minimum and\n"
"maximum number of values; and for each name the numbers of all examples as one packed list, without its length, or\n"
"None if the feature does not hold numbers.");

static PyObject *sums(PyObject *module, PyObject *args) {
    PyObject *data, *result = NULL, *numbers[MOST_KNOWN] = {NULL}, *lists = NULL;
    Py_ssize_t position, names_size, kinds_size, size;
    const char *names, *kinds;
    Tally tally;
    if (!PyArg_ParseTuple(args, "Onny#y#", &data, &position, &size, &names, &names_size, &kinds, &kinds_size)) return NULL;
    bytes_t start = part_of(data, position, size), end;
    if (!start || !read_tally(&tally, names, names_size, kinds, kinds_size) || !(lists = PyList_New(0))) return NULL;
    for (int name = 0; name < tally.names; name++) {
        if (tally.known[name].kind != FLOATS && tally.known[name].kind != INTEGERS) continue;
        if (!(numbers[name] = PyBytes_FromStringAndSize(NULL, size - position))) goto done;
        tally.numbers[name] = (unsigned char *)PyBytes_AsString(numbers[name]);
    }
    Py_BEGIN_ALLOW_THREADS
    end = count_examples(start + position, start + size, &tally, 1);
    Py_END_ALLOW_THREADS
    for (int name = 0; name < tally.names; name++) {
        char *first = numbers[name] ? PyBytes_AsString(numbers[name]) : NULL;
        if (first && _PyBytes_Resize(&numbers[name], (char *)tally.numbers[name] - first)) goto done;
        if (PyList_Append(lists, first ? numbers[name] : Py_None)) goto done;
    }
    result = Py_BuildValue(
        "ny#y#O", (Py_ssize_t)(end - start), tally.counts, kinds_size, tally.sums,
        (Py_ssize_t)((size_t)tally.names * sizeof(Sums)), lists);
done:
    for (int name = 0; name < tally.names; name++) Py_XDECREF(numbers[name]);
    Py_XDECREF(lists);
    return result;
}

PyDoc_STRVAR(sizes_doc, "sizes(records)\n--\n\n"
"Return the size of each framed record, as unsigned 64-bit integers, without checking CRCs.");

static PyObject *sizes(PyObject *module, PyObject *args) {
    const char *data;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "y#", &data, &size)) return NULL;
    PyObject *result = PyBytes_FromStringAndSize(NULL, size / FRAMING * 8);
    if (!result) return NULL;
    char *first = PyBytes_AsString(result), *out = first;
    for (uint64_t length; size; data += length, size -= (Py_ssize_t)length, out += 8) {
        if (size < FRAMING || (length = eight((bytes_t)data)) > (uint64_t)(size - FRAMING)) {
            Py_DECREF(result);
            return PyErr_Format(PyExc_ValueError, "the bytes do not end with a record");
        }
        length += FRAMING;
        memcpy(out, &length, 8);
    }
    return _PyBytes_Resize(&result, out - first) ? NULL : result;
}

/* Whether values of a known kind and count can be returned in a form of `columns`. */
static int suits(const Known *known, int form) {
    int text = known->kind == DELIMITED, numbers = known->kind == FLOATS || known->kind == INTEGERS;
    switch (form) {
        case 'n': return numbers && known->count == 1;
        case 't': return text && known->count == 1;
        case 'a': case 'A': return numbers || (text && known->count == 1);
        case 'l': case 'L': return text;
        default: return form == '-';
    }
}

/* The values of a feature as a list of bytes, as bytes, or as a bytearray. */
static PyObject *values_of(const Feature *feature, int form) {
    bytes_t stop = feature->list, at = stop, end = feature->end;
    if (form == 'l' || form == 'L') {
        PyObject *values = PyList_New(0);
        while (values && stop < end) {
            at = content(stop, end, DELIMITED, &stop);
            PyObject *value = PyBytes_FromStringAndSize((const char *)at, stop - at);
            if (!value || PyList_Append(values, value)) Py_CLEAR(values);
            Py_XDECREF(value);
        }
        return values;
    }
    if (at < end) at = content(at, end, DELIMITED, &stop);
    if (form == 't') return PyBytes_FromStringAndSize((const char *)at, end - at);
    if (feature->kind != INTEGERS) return PyByteArray_FromStringAndSize((const char *)at, end - at);
    int64_t size;
    PyObject *values = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)count_values(feature, &size) * 8);
    char *out = values ? PyByteArray_AsString(values) : NULL;
    for (uint64_t number; out && at < end; out += 8) {
        at = read_number(at, end, &number);
        memcpy(out, &number, 8);
    }
    return values;
}

PyDoc_STRVAR(columns_doc, "columns(messages, first, names, forms)\n--\n\n"
"Return the values of examples in a column for each known feature, up to the first without the usual form; and their\n"
"number.\n\n"
"`messages` is a list of bytes, read from index `first` on; `names` is the argument of `examples`. `forms`\n"
"has a letter for each name: n for one number of each message, all in one bytearray; in lists, t for one value as\n"
"bytes, a for a bytearray of numbers or of one value, and l for a list of bytes; A and L for those that may be\n"
"missing, which are None; and - for none. Numbers are int64 or float32.");

static PyObject *columns(PyObject *module, PyObject *args) {
    PyObject *messages, *made = NULL, *column;
    Py_ssize_t first, names_size, forms_size, filled[MOST_KNOWN] = {0};
    const char *names, *forms;
    Known known[MOST_KNOWN];
    Feature features[MOST_KNOWN];
    if (!PyArg_ParseTuple(args, "O!ny#y#", &PyList_Type, &messages, &first, &names, &names_size, &forms, &forms_size)) return NULL;
    Py_ssize_t last = PyList_Size(messages), begin = first;
    int count = read_known((bytes_t)names, names_size, known);
    uint64_t found, required = 0;
    int right = count >= 0 && count == forms_size && first >= 0 && first <= last;
    for (int place = 0; right && place < count; place++) {
        right = suits(&known[place], forms[place]);
        required |= (uint64_t)(forms[place] >= 'a') << place;
    }
    if (!right) return PyErr_Format(PyExc_ValueError, "no such messages, names or forms");
    if (!(made = PyList_New(count))) return NULL;
    for (int place = 0; place < count; place++) {
        column = forms[place] == 'n' ? PyByteArray_FromStringAndSize(NULL, 8 * (last - first)) : PyList_New(0);
        if (!column || PyList_SetItem(made, place, column)) goto failed;
    }
    for (; first < last; first++) {
        char *start;
        Py_ssize_t size;
        if (PyBytes_AsStringAndSize(PyList_GetItem(messages, first), &start, &size)) goto failed;
        if (!is_usual((bytes_t)start, (bytes_t)start + size, known, count, &found, features)) break;
        if ((found & required) != required) break;
        for (int place = 0; place < count; place++) {
            Feature *feature = &features[place];
            column = PyList_GetItem(made, place);
            if (forms[place] == '-') continue;
            if (forms[place] == 'n') {
                uint64_t number;
                bytes_t stop = feature->end, at = content(feature->list, stop, DELIMITED, &stop);
                Py_ssize_t width = feature->kind == FLOATS ? 4 : 8;
                if (width == 8) read_number(at, stop, &number);
                memcpy(PyByteArray_AsString(column) + filled[place], width == 4 ? at : (bytes_t)&number, (size_t)width);
                filled[place] += width;
                continue;
            }
            PyObject *value = found >> place & 1 ? values_of(feature, forms[place]) : Py_NewRef(Py_None);
            int failed = !value || PyList_Append(column, value);
            Py_XDECREF(value);
            if (failed) goto failed;
        }
    }
    for (int place = 0; place < count; place++)
        if (forms[place] == 'n' && PyByteArray_Resize(PyList_GetItem(made, place), filled[place])) goto failed;
    return Py_BuildValue("Nn", made, first - begin);
failed:
    Py_DECREF(made);
    return NULL;
}

/* Read and check records, and write their examples' numbers into columns and their texts' positions into `texts`;
   returns the number of records before the first that cannot be read or does not have the usual form. */
static Py_ssize_t read_rows(
    const int64_t *spans, Py_ssize_t count, unsigned char *buffer, const Known *known, int known_count,
    const int64_t *widths, char **columns, Text **texts) {
    uint64_t found, required = known_count == 64 ? UINT64_MAX : ((uint64_t)1 << known_count) - 1;
    Feature features[MOST_KNOWN];
    for (Py_ssize_t row = 0, last; row < count; row = last) {
        const int64_t *span = spans + 3 * row;
        for (last = row + 1; last < count; last++)
            if (spans[3 * last] != span[0] || spans[3 * last + 1] != spans[3 * last - 1]) break;
        int64_t size = spans[3 * last - 1] - span[1], done = 0;
        while (done < size) {
            ssize_t read = pread((int)span[0], buffer + done, (size_t)(size - done), (off_t)(span[1] + done));
            if (read < 0 && errno == EINTR) continue;
            if (read <= 0) return row;
            done += read;
        }
        for (Py_ssize_t each = row; each < last; each++) {
            bytes_t at = buffer + (spans[3 * each + 1] - span[1]), message = at + 12;
            uint64_t length = (uint64_t)(spans[3 * each + 2] - spans[3 * each + 1] - FRAMING);
            if (eight(at) != length || four_before(message) != masked(crc32c(0, at, 8))) return each;
            if (four_before(message + length + 4) != masked(crc32c(0, message, (size_t)length))) return each;
            if (!is_usual(message, message + length, known, known_count, &found, features) || found != required) return each;
            for (int number = 0; number < known_count; number++) {
                bytes_t stop = features[number].end, value = features[number].list;
                if (widths[number] < 0) continue;
                if (value < stop) value = content(value, stop, DELIMITED, &stop);
                if (!widths[number]) texts[number][each] = (Text){value, stop - value};
                else if (features[number].kind != INTEGERS)
                    memcpy(columns[number] + each * widths[number], value, (size_t)widths[number]);
                else {
                    char *out = columns[number] + each * widths[number];
                    for (uint64_t integer; value < stop; out += 8) {
                        value = read_number(value, stop, &integer);
                        memcpy(out, &integer, 8);
                    }
                }
            }
        }
        buffer += size;
    }
    return count;
}

PyDoc_STRVAR(rows_doc, "rows(spans, names, widths)\n--\n\n"
"Read records from files, and return a column for each known feature of their examples; None if one of them cannot be\n"
"read, is damaged, or does not have the usual form.\n\n"
"`spans` has three signed 64-bit integers for each record: the descriptor of its file, and its start and end in\n"
"the file; `names` is the argument of `examples`; `widths` has a signed 64-bit integer for each name: the bytes that numbers take in\n"
"each example, for a column that is a bytearray of int64, float32 or the content of one bytes value; 0 for one bytes\n"
"value, with a list as the column; and -1 for no column.");

static PyObject *rows(PyObject *module, PyObject *args) {
    const char *spans, *names, *given;
    Py_ssize_t spans_size, names_size, widths_size, read = 0;
    if (!PyArg_ParseTuple(args, "y#y#y#", &spans, &spans_size, &names, &names_size, &given, &widths_size)) return NULL;
    Known known[MOST_KNOWN];
    int64_t widths[MOST_KNOWN], total = 0;
    char *columns[MOST_KNOWN] = {0};
    Text *texts[MOST_KNOWN] = {0};
    Py_ssize_t count = spans_size / 24;
    int names_count = read_known((bytes_t)names, names_size, known), right = names_count >= 0 && widths_size == 8 * names_count;
    int64_t *places = PyMem_Malloc((size_t)spans_size + 24);
    unsigned char *buffer = NULL;
    PyObject *made = NULL;
    if (!places) return PyErr_NoMemory();
    memcpy(places, spans, (size_t)spans_size);
    if (right) memcpy(widths, given, (size_t)widths_size);
    for (Py_ssize_t row = 0; right && row < count; row++) {
        int64_t size = places[3 * row + 2] - places[3 * row + 1];
        right = places[3 * row + 1] >= 0 && size >= FRAMING && size < INT64_MAX - total;
        total += size;
    }
    for (int number = 0; right && number < names_count; number++) {
        const Known *each = &known[number];
        int64_t values = each->count, size = each->kind == FLOATS ? 4 * values : each->kind == INTEGERS ? 8 * values : each->size;
        if (widths[number] > 0) right = each->kind >= 0 && values >= 0 && size == widths[number] && (each->kind != DELIMITED || values == 1);
        else if (!widths[number]) right = each->kind == DELIMITED && values == 1;
    }
    if (!right) {
        PyErr_Format(PyExc_ValueError, "no such records, names or widths");
        goto done;
    }
    if (!(buffer = PyMem_Malloc((size_t)total + 1)) || !(made = PyList_New(names_count))) goto done;
    for (int number = 0; number < names_count; number++) {
        PyObject *column = widths[number] > 0 ? PyByteArray_FromStringAndSize(NULL, count * (Py_ssize_t)widths[number]) : PyList_New(0);
        if (!column || PyList_SetItem(made, number, column)) goto done;
        if (widths[number] > 0) columns[number] = PyByteArray_AsString(column);
        else if (!widths[number] && !(texts[number] = PyMem_Malloc((size_t)(count + 1) * sizeof(Text)))) goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    read = read_rows(places, count, buffer, known, names_count, widths, columns, texts);
    Py_END_ALLOW_THREADS
    for (int number = 0; read == count && number < names_count; number++)
        for (Py_ssize_t row = 0; texts[number] && row < count; row++) {
            PyObject *text = PyBytes_FromStringAndSize((const char *)texts[number][row].data, texts[number][row].size);
            if (!text || PyList_Append(PyList_GetItem(made, number), text)) read = -1;
            Py_XDECREF(text);
            if (read < 0) goto done;
        }
    if (read < count) {
        Py_DECREF(made);
        made = Py_NewRef(Py_None);
    }
done:
    for (int number = 0; number < MOST_KNOWN; number++) PyMem_Free(texts[number]);
    PyMem_Free(buffer);
    PyMem_Free(places);
    if (made && PyErr_Occurred()) Py_CLEAR(made);
    if (!made && !PyErr_Occurred()) PyErr_NoMemory();
    return made;
}

PyDoc_STRVAR(unframed_doc, "unframed(buffers, places)\n--\n\n"
"Return the data of framed records as a list, up to the first that is incomplete or has a wrong CRC.\n\n"
"`buffers` is a list of bytes. `places` has three signed 64-bit integers for each record: the number of its buffer, and\n"
"its start and end in the buffer.");

static PyObject *unframed(PyObject *module, PyObject *args) {
    PyObject *buffers, *found;
    const char *places;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "O!y#", &PyList_Type, &buffers, &places, &size)) return NULL;
    if (!(found = PyList_New(0))) return NULL;
    for (int64_t place[3]; size >= (Py_ssize_t)sizeof place; places += sizeof place, size -= sizeof place) {
        memcpy(place, places, sizeof place);
        PyObject *buffer = PyList_GetItem(buffers, (Py_ssize_t)place[0]), *data; /* fails for an invalid number */
        char *bytes;
        Py_ssize_t most;
        if (!buffer || PyBytes_AsStringAndSize(buffer, &bytes, &most)) goto failed;
        if (place[1] < 0 || place[2] > most || place[2] - place[1] < FRAMING) break;
        bytes_t at = (bytes_t)bytes + place[1], message = at + 12;
        size_t length = (size_t)(place[2] - place[1] - FRAMING);
        if (eight(at) != length || four_before(message) != masked(crc32c(0, at, 8))) break;
        if (four_before(message + length + 4) != masked(crc32c(0, message, length))) break;
        data = PyBytes_FromStringAndSize((const char *)message, (Py_ssize_t)length);
        int failed = !data || PyList_Append(found, data);
        Py_XDECREF(data);
        if (failed) goto failed;
    }
    return found;
failed:
    Py_DECREF(found);
    return NULL;
}
