/* Rows of tables, or samples of tars, joined to samples. Rows are of CSV, JSON Lines or columns. Part of kernel.c, which
   includes it once. */

enum { MOST_OF_ROW = 1 << 14, MOST_OF_SAMPLE = 1 << 19, MOST_OF_SAMPLES = 1 << 22, WINDOW = 1 << 16, NEAR = 1 << 12, OBJECTS = '{', IN_TARS = '.' };

/* The layout of a file of rows: cells between marks, with OBJECTS JSON objects, or with IN_TARS the members of a sample.
   Entries are named after the columns, or the members, whose names are split at the first or the last dot. */
typedef struct {
    char mark;
    int columns, key, last_dot, only_key; /* only_key: whether entries are not wanted */
    Entry names[MOST_CELLS];
} RowForm;

/* Find the names of columns; 0 if Python has to do it. */
static int begin_form(RowForm *form, const char *mark, Py_ssize_t mark_size, PyObject *names, int key) {
    const Py_ssize_t columns = PyList_Size(names);
    form->only_key = 0;
    form->last_dot = mark_size == 2 && *mark == IN_TARS;
    if (mark_size != 1 + form->last_dot || key < 0 || key >= columns || columns > MOST_CELLS) return 0;
    form->mark = *mark;
    form->columns = (int)columns;
    form->key = key;
    for (int column = 0; column < form->columns; column++)
        if (!name_entry(PyList_GetItem(names, column), &form->names[column])) return 0;
    return 1;
}

/* Find the entries and the key of a row, which may be changed; returns the number of entries, -1 if Python has to do it. */
static int find_entries(const RowForm *form, char *row, char *end, Text *key, Entry *entries) {
    Text cells[MOST_CELLS];
    int count = 0;
    cells[form->key] = (Text){NULL, 0};
    if (form->mark == OBJECTS) return find_values(row, end, &form->names[form->key], form->only_key, key, entries);
    if (find_cells(row, end, form->mark, cells, form->columns) != form->columns) return -1;
    *key = cells[form->key];
    for (int cell = 0; cell < form->columns; cell++) {
        if (cell == form->key) continue;
        entries[count] = form->names[cell];
        entries[count].data = cells[cell].data;
        entries[count++].size = (size_t)cells[cell].size;
    }
    return count;
}

static int is_utf8(const char *at, Py_ssize_t size) {
    Py_ssize_t plain = 0;
    while (plain < size && !(at[plain] & 0x80)) plain++;
    PyObject *text = plain == size ? NULL : PyUnicode_FromStringAndSize(at, size);
    if (plain < size && !text) return PyErr_Clear(), 0;
    Py_XDECREF(text);
    return 1;
}

/* Find the end of a row's text, before its line break; the start of the row if it is blank. */
static const char *end_of_content(const RowForm *form, const char *at, const char *stop) {
    const char *last = stop;
    if (form->mark == OBJECTS) {
        while (last > at && memchr(" \t\r\n", last[-1], 4)) last--;
        return last;
    }
    if (stop[-1] == '\n') last--;
    return last > at && last < stop && last[-1] == '\r' ? last - 1 : last;
}

static const char *end_of_line(const char *at, const char *end) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    return stop ? stop + 1 : end;
}

PyDoc_STRVAR(table_doc, "table(lines, mark, names, key, file, offset)\n--\n\n"
"Index the rows in lines of CSV or JSON, and return four unsigned 64-bit integers for each, and the size of all rows.\n\n"
"The integers are the hash of the row's key, the number of the file, and the row's offset and size in the file. Blank\n"
"lines are skipped, and the last row may continue in lines that follow. `mark` separates cells, or is a brace for JSON;\n"
"`names` are the columns, for JSON only that of the key; `key` is its index in them; `offset` is that of the first line.\n"
"Returns None if a row is not as `csv` or `json` write it, or has unusual bytes. Numbers may be too large for a feature.");

static PyObject *table(PyObject *module, PyObject *args) {
    const char *lines, *mark, *at, *stop;
    char copy[MOST_OF_ROW];
    Py_ssize_t size, mark_size, used = 0, room = 0;
    int key_column;
    unsigned long long file, offset;
    PyObject *names, *result = NULL, *both = NULL;
    RowForm form;
    Entry entries[MOST_CELLS];
    Text key;
    if (!PyArg_ParseTuple(args, "y#y#O!iKK", &lines, &size, &mark, &mark_size, &PyList_Type, &names, &key_column, &file, &offset))
        return NULL;
    if (!begin_form(&form, mark, mark_size, names, key_column)) Py_RETURN_NONE;
    form.only_key = 1;
    if (memchr(lines, 0, (size_t)size) || !is_utf8(lines, size)) Py_RETURN_NONE;
    if (!(result = PyBytes_FromStringAndSize(NULL, room = size))) return NULL;
    for (at = lines; at < lines + size; at = stop) {
        stop = (form.mark == OBJECTS ? end_of_line : end_of_row)(at, lines + size);
        if (!stop) break;
        const char *last = end_of_content(&form, at, stop);
        if (last == at) continue;
        char *row = (char *)at; /* changed only if there are quotes or escapes */
        if (memchr(at, form.mark == OBJECTS ? '\\' : '"', (size_t)(last - at)))
            row = last - at > MOST_OF_ROW ? NULL : memcpy(copy, at, (size_t)(last - at));
        if (!row || find_entries(&form, row, row + (last - at), &key, entries) < 0) {
            Py_DECREF(result);
            Py_RETURN_NONE;
        }
        uint64_t made[4] = {
            key_hash(key.data, (size_t)key.size), file, offset + (uint64_t)(at - lines), (uint64_t)(stop - at)};
        if (room - used < (Py_ssize_t)sizeof made && _PyBytes_Resize(&result, room = 2 * room + (Py_ssize_t)sizeof made)) return NULL;
        memcpy(PyBytes_AsString(result) + used, made, sizeof made);
        used += (Py_ssize_t)sizeof made;
    }
    if (!_PyBytes_Resize(&result, used)) both = Py_BuildValue("On", result, (Py_ssize_t)(at - lines));
    Py_XDECREF(result);
    return both;
}

PyDoc_STRVAR(positions_doc, "positions(rows, file, start, end)\n--\n\n"
"Return four unsigned 64-bit integers for each sample of a batch, as `table` does for rows, as if samples were adjacent.\n\n"
"`rows` are those of the `Batch` (api/values.py); `file` is the number of the tar; `start` is the offset in the tar of the\n"
"batch's data, and `end` that of the next sample.");

static PyObject *positions(PyObject *module, PyObject *args) {
    const char *rows;
    Py_ssize_t size;
    unsigned long long file;
    long long start, end;
    if (!PyArg_ParseTuple(args, "y#KLL", &rows, &size, &file, &start, &end)) return NULL;
    const Py_ssize_t count = size / (Py_ssize_t)sizeof(Row);
    PyObject *result = PyBytes_FromStringAndSize(NULL, 32 * count);
    if (!result) return NULL;
    char *out = PyBytes_AsString(result);
    for (Py_ssize_t sample = count; sample-- > 0;) {
        Row row;
        memcpy(&row, rows + sample * (Py_ssize_t)sizeof row, sizeof row);
        const int64_t begin = start + row.start;
        uint64_t made[4] = {row.hash, file, (uint64_t)begin, (uint64_t)(end - begin)};
        memcpy(out + 32 * sample, made, sizeof made);
        end = begin;
    }
    return result;
}

/* Files of rows, read many rows at a time as long as each begins where the previous one of its file ended. */
typedef struct {
    PyObject *files; /* the descriptor of each file by its number */
    int descriptor;
    uint64_t number, start, size, end; /* of the last file, the bytes read from it, and the end of the last row */
    Member members[MOST_ENTRIES];      /* of the last sample of a tar */
    char row[MOST_OF_SAMPLE], window[WINDOW];
} RowFiles;

/* Read rows of a file from now on; 0 if there is no such file. */
static int begin_file(RowFiles *rows, uint64_t number) {
    PyObject *key = PyLong_FromUnsignedLongLong(number), *found = key ? PyDict_GetItem(rows->files, key) : NULL;
    long descriptor = found ? PyLong_AsLong(found) : -1;
    Py_XDECREF(key);
    PyErr_Clear();
    rows->descriptor = (int)descriptor;
    rows->number = number;
    rows->size = 0;
    rows->end = (uint64_t)1 << 62;
    return descriptor >= 0;
}

/* Read this many bytes of a file into `row`; 0 if they cannot be read. */
static int read_row(RowFiles *rows, uint64_t file, uint64_t offset, uint64_t size, uint64_t most) {
    if (size > most || (file != rows->number && !begin_file(rows, file))) return 0;
    const int is_next = offset >= rows->end && offset - rows->end < NEAR;
    rows->end = offset + size;
    if (offset < rows->start || offset - rows->start > rows->size || size > rows->size - (offset - rows->start)) {
        if (!is_next || size > WINDOW)
            return pread(rows->descriptor, rows->row, (size_t)size, (off_t)offset) == (ssize_t)size;
        ssize_t found = pread(rows->descriptor, rows->window, WINDOW, (off_t)offset);
        rows->start = offset;
        rows->size = found < 0 ? 0 : (uint64_t)found;
        if (rows->size < size) return 0;
    }
    memcpy(rows->row, rows->window + (offset - rows->start), (size_t)size);
    return 1;
}

/* Find the entries and the key of the only sample in these bytes of a tar; returns their number, -1 if Python has to do it. */
static int find_members(const char *at, const char *end, int last_dot, Member *members, Text *key, Entry *entries) {
    int count = 0;
    Member next = {.size = 0};
    if (read_member((bytes_t)at, (bytes_t)end, last_dot, 1, &members[0]) != PLAIN) return -1;
    if (read_sample((bytes_t)end, 0, last_dot, 1, members, &count, &next) != SHORT || next.start != (bytes_t)end) return -1;
    *key = (Text){members->key, (ptrdiff_t)members->key_size};
    for (int number = 0; number < count; number++) {
        const Member *member = &members[number];
        entries[number] = (Entry){member->name, member->data, member->name_size, member->size, DELIMITED, {0}, 0};
    }
    return count;
}

/* Find the entries of the row at a place in a file; returns their number, -1 if the row has another key, and -2 if Python
   has to do it. */
static int entries_at(RowFiles *rows, const RowForm *form, const uint64_t *place, Text wanted, Entry *entries) {
    const int in_tars = form->mark == IN_TARS;
    Text key;
    if (!read_row(rows, place[1], place[2], place[3], in_tars ? MOST_OF_SAMPLE : MOST_OF_ROW)) return -2;
    const char *end = rows->row + place[3];
    int count;
    if (in_tars) count = find_members(rows->row, end, form->last_dot, rows->members, &key, entries);
    else {
        while (end > rows->row && (end[-1] == '\n' || end[-1] == '\r')) end--;
        count = is_utf8(rows->row, end - rows->row) ? find_entries(form, rows->row, (char *)end, &key, entries) : -1;
    }
    if (count < 0) return -2;
    return compare(key.data, (size_t)key.size, wanted.data, (size_t)wanted.size) ? -1 : count;
}

/* A column in the layout of Apache Arrow. */
typedef struct {
    int kind; /* 's' and 'S' for text or bytes with offsets of 32 and 64 bits, 'i' for int64, 'd' for float64 */
    const char *valid, *ends, *values;
    Py_ssize_t valid_size, ends_size, values_size;
} Column;

typedef struct {
    unsigned long long file, number, rows;
    Column columns[MOST_CELLS];
} Group;

/* Parse the columns of row groups; NULL if they are invalid. */
static Group *find_groups(PyObject *list, const RowForm *form) {
    Group *groups = PyMem_Calloc((size_t)PyList_Size(list) + 1, sizeof *groups);
    if (!groups) return (Group *)PyErr_NoMemory();
    for (Py_ssize_t number = 0; number < PyList_Size(list); number++) {
        Group *group = &groups[number];
        PyObject *columns, *of_group = PyList_GetItem(list, number);
        int right = PyArg_ParseTuple(of_group, "KKKO!", &group->file, &group->number, &group->rows, &PyList_Type, &columns);
        if (right && PyList_Size(columns) != form->columns) right = (PyErr_Format(PyExc_ValueError, "other columns"), 0);
        for (int column = 0; right && column < form->columns; column++) {
            Column *found = &group->columns[column];
            right = PyArg_ParseTuple(
                PyList_GetItem(columns, column), "Cz#z#z#", &found->kind, &found->valid, &found->valid_size, &found->ends,
                &found->ends_size, &found->values, &found->values_size);
        }
        if (!right) return PyMem_Free(groups), NULL;
    }
    return groups;
}

static int is_text(const Column *column) { return column->kind == 's' || column->kind == 'S'; }

/* Set an entry to the value of a column in a row; returns 1 for a value, 0 for null, and -1 if Python has to do it. */
static int column_value(const Column *column, uint64_t row, Entry *entry) {
    const int width = column->kind == 's' ? 4 : 8, texts = is_text(column);
    const Py_ssize_t rows = (texts ? column->ends_size : column->values_size) / width - texts;
    if (rows <= 0 || row >= (uint64_t)rows) return -1;
    if (column->valid) {
        if (row / 8 >= (uint64_t)column->valid_size) return -1;
        if (!(column->valid[row / 8] >> (row & 7) & 1)) return 0;
    }
    if (texts) {
        int64_t ends[2] = {0, 0};
        int32_t short_ends[2];
        memcpy(short_ends, column->ends + (size_t)width * row, 8);
        if (width == 8) memcpy(ends, column->ends + 8 * row, 16);
        else ends[0] = short_ends[0], ends[1] = short_ends[1];
        if (ends[0] < 0 || ends[1] < ends[0] || ends[1] > column->values_size) return -1;
        entry->data = (column->values ? column->values : "") + ends[0];
        entry->size = (size_t)(ends[1] - ends[0]);
        return 1;
    }
    int64_t integer;
    double real;
    memcpy(&integer, column->values + 8 * row, 8);
    memcpy(&real, column->values + 8 * row, 8);
    return (column->kind == 'i' ? give_integer(integer, entry) : give_float(real, entry)) ? 1 : -1;
}

/* Find the entries of a row stored in columns; returns the same as `entries_at`. */
static int entries_in_columns(
    const Group *groups, Py_ssize_t most, const RowForm *form, const uint64_t *place, Text wanted, Entry *entries) {
    Entry key;
    int count = 0;
    const Group *group = groups;
    while (group < groups + most && (group->file != place[1] || group->number != place[2])) group++;
    if (group == groups + most || place[3] >= group->rows || !is_text(&group->columns[form->key])) return -2;
    if (column_value(&group->columns[form->key], place[3], &key) != 1) return -2;
    if (compare(key.data, key.size, wanted.data, (size_t)wanted.size)) return -1;
    for (int column = 0; column < form->columns; column++) {
        if (column == form->key) continue;
        entries[count] = form->names[column];
        int found = column_value(&group->columns[column], place[3], &entries[count]);
        if (found < 0) return -2;
        count += found;
    }
    return count;
}

PyDoc_STRVAR(joined_doc, "joined(data, samples, places, signatures, lists, rows, found, names, key, mark, files, groups)\n--\n\n"
"Add to each sample the values of the table row, or the entries of the sample in another tar, with its key.\n\n"
"Returns a list of the rows' numbers, None for a sample without a row, and the results of `widened`; or None if a row is\n"
"not plain, or has the name of an entry. The first five arguments are those of `widened`; `rows` are those of `table`,\n"
"sorted; `found` has the number of the first row with the hash of each key, as `find` returns it; `names`, `key` and `mark`\n"
"are those of `table`, and `files` has the descriptors of files by their numbers. For samples of tars, `mark` is a dot, two\n"
"if the names of members are split at the last dot, and their total size is limited. Without a mark, rows are located by\n"
"file, group and index, and `groups` are tuples of the numbers of the file, of the group and of its rows, and a list of its\n"
"columns. A column is a tuple of a letter and the buffers of Apache Arrow: s for text with offsets of 32 bits, S for 64\n"
"bits, i for int64, d for float64.");

/* Whether the samples of tars that were found are small enough to be copied at once. */
static int are_small(const char *rows, Py_ssize_t last, const char *found, Py_ssize_t count) {
    uint64_t total = 0, size;
    int64_t number;
    for (Py_ssize_t sample = 0; sample < count && total <= MOST_OF_SAMPLES; sample++) {
        memcpy(&number, found + 8 * sample, 8);
        if (number < 0 || number >= last) continue;
        memcpy(&size, rows + 32 * number + 24, 8);
        total += size < MOST_OF_SAMPLES ? size : MOST_OF_SAMPLES + 1;
    }
    return total <= MOST_OF_SAMPLES;
}

static PyObject *joined(PyObject *module, PyObject *args) {
    const char *rows, *found, *mark;
    Py_ssize_t rows_size, found_size, mark_size;
    PyObject *names, *groups, *numbers = NULL, *made = NULL, *result = NULL;
    Entry entries[MOST_CELLS];
    RowForm form;
    Group *of_columns = NULL;
    int key, done;
    Wider *wider = PyMem_Calloc(1, sizeof *wider);
    RowFiles *files = PyMem_Malloc(sizeof *files);
    if (!wider || !files) PyErr_NoMemory();
    else if (PyArg_ParseTuple(
            args, "Sy#y#O!O!y#y#O!iy#O!O!", &wider->data, &wider->rows, &wider->rows_size, &wider->places, &wider->places_size,
            &PyList_Type, &wider->signatures, &PyList_Type, &wider->lists, &rows, &rows_size, &found, &found_size, &PyList_Type,
            &names, &key, &mark, &mark_size, &PyDict_Type, &files->files, &PyList_Type, &groups) && begin_wider(wider)) numbers = PyList_New(0);
    if (!numbers) goto done;
    const Py_ssize_t count = wider->rows_size / (Py_ssize_t)sizeof(Row), last = rows_size / 32;
    if (found_size != 8 * count || key < 0 || key >= PyList_Size(names)) {
        PyErr_Format(PyExc_ValueError, "no such samples or columns");
        goto done;
    }
    files->number = UINT64_MAX;
    done = begin_form(&form, mark_size ? mark : ",", mark_size ? mark_size : 1, names, key);
    if (done && form.mark == IN_TARS) done = are_small(rows, last, found, count);
    if (done && !mark_size && !(of_columns = find_groups(groups, &form))) goto done;
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
            cells = of_columns ? entries_in_columns(of_columns, PyList_Size(groups), &form, place, wanted, entries)
                               : entries_at(files, &form, place, wanted, entries);
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
    PyMem_Free(files);
    PyMem_Free(of_columns);
    Py_XDECREF(numbers);
    Py_XDECREF(made);
    return result;
}
