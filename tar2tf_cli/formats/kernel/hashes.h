/* Tables of hashes: creation, sorting and lookup. Part of kernel.c, which includes it once. */

PyDoc_STRVAR(hashes_doc, "hashes(data)\n--\n\n"
"Return the `key_hash` of each line, as unsigned 64-bit integers; lines end with LF or CRLF, and empty ones are ignored.");

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

enum { SORTED_AT_ONCE = 32, MOST_WIDTH = 4 };

static int compare_4(const void *one, const void *other) { return compare_rows(one, other, 4); }

static void copy_row(uint64_t *to, const uint64_t *row, size_t width) {
    if (width == 1) *to = *row;
    else memcpy(to, row, 8 * MOST_WIDTH);
}

/* Sort rows of one or four numbers in place, by the first number and then by the others, with a radix sort that begins with
   the byte at `shift` of the first number. */
static void sort_rows(uint64_t *rows, size_t count, size_t width, int shift) {
    uint64_t row[MOST_WIDTH], there[MOST_WIDTH];
    if (count > SORTED_AT_ONCE && shift < 0) {
        if (width > 1) qsort(rows, count, 8 * width, compare_4);
        return;
    }
    if (count <= SORTED_AT_ONCE) {
        for (size_t last = 1; last < count; last++) {
            size_t at = last;
            copy_row(row, rows + width * last, width);
            for (; at && compare_rows(rows + width * (at - 1), row, (Py_ssize_t)width) > 0; at--)
                copy_row(rows + width * at, rows + width * (at - 1), width);
            copy_row(rows + width * at, row, width);
        }
        return;
    }
    size_t next[257] = {0}, end[256];
    for (size_t at = 0; at < count; at++) next[(rows[width * at] >> shift & 255) + 1]++;
    for (int byte = 0; byte < 256; byte++) end[byte] = next[byte + 1] += next[byte];
    for (int byte = 0; byte < 256; byte++) {
        while (next[byte] < end[byte]) {
            copy_row(row, rows + width * next[byte], width);
            for (int its; (its = (int)(row[0] >> shift & 255)) != byte;) {
                uint64_t *place = rows + width * next[its]++;
                copy_row(there, place, width);
                copy_row(place, row, width);
                copy_row(row, there, width);
            }
            copy_row(rows + width * next[byte]++, row, width);
        }
    }
    for (size_t byte = 0, start = 0; byte < 256; start = end[byte++]) {
        if (end[byte] - start > 1) sort_rows(rows + width * start, end[byte] - start, width, shift - 8);
    }
}

PyDoc_STRVAR(ordered_doc, "ordered(rows, width)\n--\n\n"
"Sort rows of one or four unsigned 64-bit integers, and remove repeated ones.");

static PyObject *ordered(PyObject *module, PyObject *args) {
    const char *data;
    Py_ssize_t size, width;
    if (!PyArg_ParseTuple(args, "y#n", &data, &size, &width)) return NULL;
    if ((width != 1 && width != 4) || size % (8 * width)) return PyErr_Format(PyExc_ValueError, "rows of %zd", width);
    PyObject *result = PyBytes_FromStringAndSize(data, size);
    if (!result) return NULL;
    uint64_t *rows = (uint64_t *)(void *)PyBytes_AsString(result), *end = rows + size / 8, *out = rows;
    Py_BEGIN_ALLOW_THREADS
    sort_rows(rows, (size_t)(size / 8 / width), (size_t)width, 56);
    for (const uint64_t *row = rows; row < end; row += width) {
        if (out > rows && !compare_rows(out - width, row, width)) continue;
        if (out < row) memmove(out, row, (size_t)(8 * width));
        out += width;
    }
    Py_END_ALLOW_THREADS
    return _PyBytes_Resize(&result, 8 * (out - rows)) ? NULL : result;
}

enum { GUESSES = 8 };

static uint64_t hash_at(const char *rows, Py_ssize_t width, int64_t number) {
    uint64_t hash;
    memcpy(&hash, rows + 8 * width * number, 8);
    return hash;
}

/* Find the first of sorted rows whose hash is not less than another; returns `count` if there is none. Hashes are spread
   evenly, so a few guesses between the known hashes around a row find it; for others, the interval is then halved. */
static int64_t first_with(const char *rows, Py_ssize_t width, int64_t count, uint64_t wanted) {
    int64_t low = 0, high = count;
    uint64_t least = 0, most = UINT64_MAX;
    for (int guesses = 0; low < high; guesses++) {
        const double share = (double)(wanted - least) / ((double)(most - least) + 1);
        int64_t middle = low + (int64_t)((guesses < GUESSES ? share : 0.5) * (double)(high - low));
        if (middle >= high) middle = high - 1;
        const uint64_t there = hash_at(rows, width, middle);
        if (there < wanted) low = middle + 1, least = there;
        else high = middle, most = there;
    }
    return low;
}

PyDoc_STRVAR(find_doc, "find(rows, width, wanted)\n--\n\n"
"Return for each wanted unsigned 64-bit integer the number of the first sorted row that begins with it; -1 for none.");

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
        const uint64_t looked_for = hash_at(wanted, 1, number);
        int64_t first = first_with(ordered, width, count, looked_for);
        if (first == count || hash_at(ordered, width, first) != looked_for) first = -1;
        memcpy(out + 8 * number, &first, 8);
    }
    return result;
}
