/* Tables of hashes: creation, sorting and lookup. Part of kernel.c, which includes it once. */

PyDoc_STRVAR(hashes_doc, "hashes(data)\n--\n\n"
"The hash of each line by `key_hash`, as unsigned 64-bit integers; lines end with LF or CRLF, and empty ones do not count.");

static PyObject *hashes(PyObject *module, PyObject *args) {
    const char *data, *stop;
    Py_ssize_t size, count = 0;
    if (!PyArg_ParseTuple(args, "y#", &data, &size)) return NULL;
    const char *at = data, *end = data + size;
    for (; at < end; at++) count += *at == '\n';
    PyObject *result = PyBytes_FromStringAndSize(NULL, 8 * (count + 1));
    if (!result) return NULL;
    char *first = PyBytes_AsString(result), *out = first;
    for (at = data; at < end; at = stop + 1) {
        if (!(stop = memchr(at, '\n', (size_t)(end - at)))) stop = end;
        const char *last = stop;
        while (last > at && last[-1] == '\r') last--;
        if (last == at) continue;
        uint64_t hash = key_hash((bytes_t)at, (size_t)(last - at));
        memcpy(out, &hash, 8);
        out += 8;
    }
    return _PyBytes_Resize(&result, out - first) ? NULL : result;
}

static int compare_rows(const uint64_t *one, const uint64_t *other, Py_ssize_t width) {
    Py_ssize_t column = 0;
    while (column < width - 1 && one[column] == other[column]) column++;
    return (one[column] > other[column]) - (one[column] < other[column]);
}

enum { SORTED_AT_ONCE = 32 };

/* Radix sort of numbers in place, by the byte at `shift` and then the less significant bytes. */
static void sort_numbers(uint64_t *rows, size_t count, int shift) {
    if (count <= SORTED_AT_ONCE || shift < 0) {
        for (size_t last = 1; last < count; last++) {
            uint64_t row = rows[last];
            size_t at = last;
            for (; at && rows[at - 1] > row; at--) rows[at] = rows[at - 1];
            rows[at] = row;
        }
        return;
    }
    size_t next[257] = {0}, end[256];
    for (size_t at = 0; at < count; at++) next[(rows[at] >> shift & 255) + 1]++;
    for (int byte = 0; byte < 256; byte++) end[byte] = next[byte + 1] += next[byte];
    for (int byte = 0; byte < 256; byte++) {
        while (next[byte] < end[byte]) {
            uint64_t row = rows[next[byte]];
            for (int its; (its = (int)(row >> shift & 255)) != byte;) {
                uint64_t there = rows[next[its]];
                rows[next[its]++] = row;
                row = there;
            }
            rows[next[byte]++] = row;
        }
    }
    for (size_t byte = 0, start = 0; byte < 256; start = end[byte++]) {
        if (end[byte] - start > 1) sort_numbers(rows + start, end[byte] - start, shift - 8);
    }
}

static int compare_4(const void *one, const void *other) { return compare_rows(one, other, 4); }

PyDoc_STRVAR(ordered_doc, "ordered(rows, width)\n--\n\n"
"Rows of one or four unsigned 64-bit integers in their order, each once.");

static PyObject *ordered(PyObject *module, PyObject *args) {
    const char *data;
    Py_ssize_t size, width;
    if (!PyArg_ParseTuple(args, "y#n", &data, &size, &width)) return NULL;
    if ((width != 1 && width != 4) || size % (8 * width)) return PyErr_Format(PyExc_ValueError, "rows of %zd", width);
    PyObject *result = PyBytes_FromStringAndSize(data, size);
    if (!result) return NULL;
    uint64_t *rows = (uint64_t *)(void *)PyBytes_AsString(result), *end = rows + size / 8, *out = rows;
    Py_BEGIN_ALLOW_THREADS
    if (width == 1) sort_numbers(rows, (size_t)size / 8, 56);
    else qsort(rows, (size_t)(size / 32), 32, compare_4);
    for (const uint64_t *row = rows; row < end; row += width) {
        if (out > rows && !compare_rows(out - width, row, width)) continue;
        if (out < row) memmove(out, row, (size_t)(8 * width));
        out += width;
    }
    Py_END_ALLOW_THREADS
    return _PyBytes_Resize(&result, 8 * (out - rows)) ? NULL : result;
}

PyDoc_STRVAR(find_doc, "find(rows, width, wanted)\n--\n\n"
"For each of some unsigned 64-bit integers, the number of the first of the ordered rows that begins with it; -1 for none.");

static PyObject *find(PyObject *module, PyObject *args) {
    const char *ordered, *wanted;
    Py_ssize_t size, width, wanted_size;
    if (!PyArg_ParseTuple(args, "y#ny#", &ordered, &size, &width, &wanted, &wanted_size)) return NULL;
    if (width < 1 || width > 4) return PyErr_Format(PyExc_ValueError, "rows of %zd", width);
    const int64_t count = size / 8 / width;
    PyObject *result = PyBytes_FromStringAndSize(NULL, wanted_size / 8 * 8);
    if (!result) return NULL;
    char *out = PyBytes_AsString(result);
    for (Py_ssize_t number = 0; number < wanted_size / 8; number++) {
        uint64_t looked_for, there = 0;
        int64_t low = 0, high = count;
        memcpy(&looked_for, wanted + 8 * number, 8);
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            memcpy(&there, ordered + 8 * width * middle, 8);
            if (there < looked_for) low = middle + 1;
            else high = middle;
        }
        if (low < count) memcpy(&there, ordered + 8 * width * low, 8);
        if (low == count || there != looked_for) low = -1;
        memcpy(out + 8 * number, &low, 8);
    }
    return result;
}
