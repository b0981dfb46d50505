/* The plain part of reading tars and TFRecords, where Python takes most of its time for small samples.

   Each function stops at the first thing that is not plain, and Python goes on from there. So nothing is reported here,
   and every rule has its full form in Python only: headers in formats/tar.py, keys and batches in samples/grouping.py,
   messages in formats/example.py, framing in formats/tfrecord.py. Only the limited API of Python 3.10 is used. */

#define _XOPEN_SOURCE 700 /* pread */
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <float.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "records.h"

PyAPI_FUNC(int) _PyBytes_Resize(PyObject **, Py_ssize_t); /* of the stable ABI, but not in its headers */

static uint32_t table_of_crc32[256];

/* The hash of a key, as formats/checksums.py makes it. */
static uint64_t key_hash(bytes_t key, size_t size) {
    uint32_t crc = 0xFFFFFFFF;
    for (size_t at = 0; at < size; at++) crc = crc >> 8 ^ table_of_crc32[(crc ^ key[at]) & 0xFF];
    return (uint64_t)crc32c(0, key, size) << 32 | (crc ^ 0xFFFFFFFF);
}

/* --- Digests --- */

static const uint64_t primes[] = {
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5};

static uint64_t rotated(uint64_t number, int bits) { return number << bits | number >> (64 - bits); }
static uint64_t mixed(uint64_t lane, uint64_t word) { return rotated(lane + word * primes[1], 31) * primes[0]; }

/* The digest of bytes by XXH64, of the specification in doc/xxhash_spec.md of https://github.com/Cyan4973/xxHash. */
static uint64_t xxh64(bytes_t data, size_t size, uint64_t seed) {
    uint64_t digest = seed + primes[4], lanes[] = {seed + primes[0] + primes[1], seed + primes[1], seed, seed - primes[0]};
    bytes_t end = data + size;
    if (size >= 32) {
        for (; end - data >= 32; data += 32)
            for (int lane = 0; lane < 4; lane++) lanes[lane] = mixed(lanes[lane], eight(data + 8 * lane));
        digest = rotated(lanes[0], 1) + rotated(lanes[1], 7) + rotated(lanes[2], 12) + rotated(lanes[3], 18);
        for (int lane = 0; lane < 4; lane++) digest = (digest ^ mixed(0, lanes[lane])) * primes[0] + primes[3];
    }
    digest += size;
    for (; end - data >= 8; data += 8) digest = rotated(digest ^ mixed(0, eight(data)), 27) * primes[0] + primes[3];
    if (end - data >= 4) {
        uint64_t word = (uint64_t)data[0] | (uint64_t)data[1] << 8 | (uint64_t)data[2] << 16 | (uint64_t)data[3] << 24;
        digest = rotated(digest ^ word * primes[0], 23) * primes[1] + primes[2];
        data += 4;
    }
    for (; data < end; data++) digest = rotated(digest ^ *data * primes[4], 11) * primes[0];
    digest = (digest ^ digest >> 33) * primes[1];
    digest = (digest ^ digest >> 29) * primes[2];
    return digest ^ digest >> 32;
}

/* --- Members of a tar --- */

enum { BLOCK = 512, MOST_ENTRIES = 32, MOST_NAMES = 512, MOST_SIGNATURES = 16, MOST_BYTES = 1 << 18 };
enum { PLAIN = 1, SHORT = 0, ODD = -1 };

typedef struct {
    char name[100]; /* the entry's: the extension, in lower case where the key rule says so */
    bytes_t start, key, data, next; /* start: of its first header */
    size_t name_size, key_size, size;
} Member;

static int has(bytes_t text, size_t size, const char *part) {
    size_t length = strlen(part);
    for (size_t at = 0; at + length <= size; at++)
        if (text[at] == (unsigned char)part[0] && !memcmp(text + at, part, length)) return 1;
    return 0;
}

/* A number of exactly so many octal digits; -1 if it is anything else. */
static int64_t octal(bytes_t field, int digits) {
    int64_t number = 0;
    for (int digit = 0; digit < digits; digit++) {
        if (field[digit] < '0' || field[digit] > '7') return -1;
        number = number << 3 | (field[digit] - '0');
    }
    return number;
}

/* The size in a header; -1 if it is not written in the usual way, or the checksum is not. */
static int64_t plain_size(bytes_t header) {
    uint64_t total = 8 * ' ';
    for (int half = 0; half < BLOCK; half += 256) {
        uint16_t sum = 0; /* has room for that of 256 bytes, and compilers add up many at once */
        for (int at = half; at < half + 256; at++) sum = (uint16_t)(sum + header[at]);
        total += sum;
    }
    for (int at = 148; at < 156; at++) total -= header[at];
    int ended = (header[154] == 0 && header[155] == ' ') || (header[154] == ' ' && header[155] == 0);
    ended = ended && (header[135] == 0 || header[135] == ' ');
    return ended && octal(header + 148, 6) == (int64_t)total ? octal(header + 124, 11) : -1;
}

/* Whether an extended header has nothing but times, such as those of webdataset: records `LENGTH KEY=VALUE\n`. */
static int has_only_times(bytes_t data, size_t size) {
    for (size_t at = 0; at < size;) {
        size_t length = 0, key = at;
        while (key < size && key < at + 4 && data[key] >= '0' && data[key] <= '9')
            length = length * 10 + (size_t)(data[key++] - '0');
        if (key == at || length > size - at || length < key - at + 8 || data[at + length - 1] != '\n') return 0;
        if (data[key] != ' ' || !memchr("acm", data[key + 1], 3) || memcmp(data + key + 2, "time=", 5)) return 0;
        at += length;
    }
    return size > 0;
}

/* Read the member whose header is at a position. It is PLAIN if it is a regular file with nothing unusual that is
   buffered as a whole, SHORT if more bytes may show that it is, and ODD otherwise. */
static int read_member(bytes_t header, bytes_t end, int last_dot, int differs, Member *member) {
    member->start = header;
    if (end - header < BLOCK) return SHORT;
    int64_t size = plain_size(header);
    if (header[156] == 'x') {
        if (size < 0 || size > BLOCK) return ODD;
        if (end - header < 3 * BLOCK) return SHORT;
        if (!has_only_times(header + BLOCK, (size_t)size)) return ODD;
        size = plain_size(header += 2 * BLOCK);
    }
    const unsigned char *stop = memchr(header, 0, 100);
    if (!stop || stop == header || header[156] != '0' || header[345] || size < 0 || size > MOST_BYTES) return ODD;
    size_t length = (size_t)(stop - header), base = length, dot = length, dots = 0;
    while (base && header[base - 1] != '/') base--;
    for (size_t at = base; at < length; at++)
        if (header[at] == '.' && (last_dot || !dots++)) dot = at;
    if (last_dot) dots = dot > base && memchr(header + base, '.', dot - base) ? 2 : 1;
    if (dot <= base || dot + 1 >= length || (dots > 1 && !differs)) return ODD;
    if (has(header, length, "._") || has(header, length, "__meta__")) return ODD;
    member->name_size = length - dot - 1;
    for (size_t at = 0; at < member->name_size; at++) {
        unsigned char letter = header[dot + 1 + at];
        if (letter > 126) return ODD;
        member->name[at] = (char)(!last_dot && letter >= 'A' && letter <= 'Z' ? letter + 32 : letter);
    }
    if (member->name_size == 7 && !memcmp(member->name, "__key__", 7)) return ODD;
    int64_t padded = (size + BLOCK - 1) / BLOCK * BLOCK;
    if (end - header - BLOCK < padded) return SHORT;
    member->key = header;
    member->key_size = dot;
    member->data = header + BLOCK;
    member->size = (size_t)size;
    member->next = member->data + padded;
    return PLAIN;
}

static int compare(const void *one, size_t size, const void *other, size_t length) {
    int order = memcmp(one, other, size < length ? size : length);
    return order ? order : (size > length) - (size < length);
}

/* --- Records --- */

static size_t varint_size(uint64_t number) {
    size_t size = 1;
    while (number >>= 7) size++;
    return size;
}

static unsigned char *put_varint(unsigned char *out, uint64_t number) {
    for (; number >= 0x80; number >>= 7) *out++ = (unsigned char)(number | 0x80);
    *out++ = (unsigned char)number;
    return out;
}

static unsigned char *put_number(unsigned char *out, uint64_t number, int size) {
    for (int byte = 0; byte < size; byte++) *out++ = (unsigned char)(number >> 8 * byte);
    return out;
}

static unsigned char *put_decimal(unsigned char *out, uint64_t number) {
    unsigned char digits[20];
    int length = 0;
    for (; number || !length; number /= 10) digits[length++] = (unsigned char)('0' + number % 10);
    while (length) *out++ = digits[--length];
    return out;
}

static size_t delimited(size_t size) { return 1 + varint_size(size) + size; }

static unsigned char *put_delimited(unsigned char *out, unsigned char tag, size_t size, const void *data) {
    *out++ = tag;
    out = put_varint(out, size);
    if (!data) return out;
    memcpy(out, data, size);
    return out + size;
}

typedef struct {
    const void *name, *data;
    size_t name_size, size;
    int tag;                  /* of its list: DELIMITED, FLOATS or INTEGERS */
    unsigned char number[24]; /* the data, where it is made: a number, or the text of one */
    int listed;               /* whether the data is all of a list, and not one value of it */
} Entry;

static size_t list_size(const Entry *entry) { return entry->listed ? entry->size : delimited(entry->size); }

static size_t entry_size(const Entry *entry) {
    return delimited(entry->name_size) + delimited(delimited(list_size(entry)));
}

/* Write a framed record of entries in the order of their names. */
static unsigned char *put_record(unsigned char *out, const Entry **entries, int count) {
    size_t total = 0;
    for (int entry = 0; entry < count; entry++) total += delimited(entry_size(entries[entry]));
    unsigned char *message = put_number(out, delimited(total), 8);
    message = put_number(message, masked(crc32c(0, out, 8)), 4);
    out = put_delimited(message, 0x0A, total, NULL);
    for (int number = 0; number < count; number++) {
        const Entry *entry = entries[number];
        out = put_delimited(out, 0x0A, entry_size(entry), NULL);
        out = put_delimited(out, 0x0A, entry->name_size, entry->name);
        out = put_delimited(out, 0x12, delimited(list_size(entry)), NULL);
        out = put_delimited(out, (unsigned char)entry->tag, list_size(entry), entry->listed ? entry->data : NULL);
        if (!entry->listed) out = put_delimited(out, 0x0A, entry->size, entry->data);
    }
    return put_number(out, masked(crc32c(0, message, (size_t)(out - message))), 4);
}

/* Write what the digest of a sample is computed of, as flow/choosing.py has it: all entries but the key. */
static unsigned char *put_content(unsigned char *out, const Entry **entries, int count, const Entry *key) {
    for (int number = 0; number < count; number++) {
        const Entry *entry = entries[number];
        if (entry == key) continue;
        memcpy(out, entry->name, entry->name_size);
        memcpy(out += entry->name_size, "\0bytes\0", 7);
        out = put_decimal(out + 7, entry->size);
        *out++ = 0;
        memcpy(out, entry->data, entry->size);
        out += entry->size;
    }
    return out;
}

/* --- Members of another tar --- */

static unsigned char blank_header[BLOCK]; /* of a member without a name and data */
static uint32_t blank_sum;

static unsigned char *put_octal(unsigned char *out, uint64_t number, int digits) {
    for (int digit = digits; digit--; number >>= 3) out[digit] = (unsigned char)('0' + (number & 7));
    return out + digits;
}

static uint32_t sum_of(const void *data, size_t size) {
    uint32_t sum = 0;
    for (size_t at = 0; at < size; at++) sum += ((bytes_t)data)[at];
    return sum;
}

static void make_blank_header(void) {
    memcpy(blank_header + 100, "0000644\0000000000\0000000000", 24); /* mode, user, group */
    put_octal(blank_header + 136, 315532800, 11);                    /* 1 January 1980 */
    memset(blank_header + 148, ' ', 8);
    blank_header[156] = '0';
    memcpy(blank_header + 257, "ustar\00000", 8);
    blank_sum = sum_of(blank_header, BLOCK);
}

/* Write a member as formats/tar.py does. */
static unsigned char *put_member(unsigned char *out, const Entry *key, const Entry *entry) {
    size_t size = key->size + 1 + entry->name_size, padded = (entry->size + BLOCK - 1) / BLOCK * BLOCK;
    memcpy(out, blank_header, BLOCK);
    memcpy(out, key->data, key->size);
    out[key->size] = '.';
    memcpy(out + key->size + 1, entry->name, entry->name_size);
    put_octal(out + 124, entry->size, 11);
    put_octal(out + 148, blank_sum + sum_of(out, size) + sum_of(out + 124, 11), 6);
    out[154] = 0;
    memcpy(out += BLOCK, entry->data, entry->size);
    memset(out + entry->size, 0, padded - entry->size);
    return out + padded;
}

/* --- Samples --- */

/* Where a sample is: offsets in the data of its first header and its key, and its first entry among all entries. */
typedef struct {
    int64_t start, key, key_size, kind, first;
    uint64_t hash;
} Row;

typedef struct {
    int64_t data, size;
} Place;

typedef struct {
    char names[MOST_NAMES]; /* of the entries as they come, each ended by a NUL */
    size_t size;
} Signature;

typedef struct {
    bytes_t data;
    Row *rows;
    Place *places;
    int64_t *hashes;
    Py_ssize_t count, entries;
    Signature signatures[MOST_SIGNATURES];
    int kinds, ascending; /* kinds: the number of signatures */
    Member first, last;
} Batch;

/* Read the members of the sample that `members[0]` begins; the first one behind it becomes `next`. */
static int read_sample(bytes_t end, int last_dot, int differs, Member *members, int *count, Member *next) {
    size_t total = members[0].size;
    for (*count = 1;; ++*count) {
        int found = read_member(members[*count - 1].next, end, last_dot, differs, next);
        if (found != PLAIN) return found;
        if (compare(members->key, members->key_size, next->key, next->key_size)) return PLAIN;
        total += next->size;
        if (*count == MOST_ENTRIES || total > MOST_BYTES) return ODD;
        for (int other = 0; other < *count; other++)
            if (!compare(members[other].name, members[other].name_size, next->name, next->name_size)) return ODD;
        members[*count] = *next;
    }
}

/* Which of the combinations of names the sample has; -1 if there is no room for it. */
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

/* Add a sample; 0 if it is left to Python. */
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

PyDoc_STRVAR(samples_doc, "samples(data, position, last_dot, differs, previous)\n--\n\n"
"Find the whole samples from a tar header at a position on, as long as they are plain.\n\n"
"Returns the arguments of a `Batch` (samples/grouping.py); None if the header may belong to the same sample as\n"
"`previous`, a member's name; or else, without any sample, whether more bytes are needed to tell. `last_dot` is the\n"
"key rule, and `differs` says whether names may be split in which the two rules differ.");

static PyObject *samples(PyObject *module, PyObject *args) {
    PyObject *data;
    Py_ssize_t position, size, previous_size;
    int last_dot, differs, found, count;
    char *start, *previous;
    if (!PyArg_ParseTuple(args, "Snppy#", &data, &position, &last_dot, &differs, &previous, &previous_size)) return NULL;
    if (PyBytes_AsStringAndSize(data, &start, &size)) return NULL;
    if (position < 0 || position > size) return PyErr_Format(PyExc_ValueError, "position %zd of %zd", position, size);
    bytes_t end = (bytes_t)start + size, stop = (bytes_t)start + position;
    Member members[MOST_ENTRIES], next = {.size = 0};
    found = read_member(stop, end, last_dot, differs, &next);
    if (found == PLAIN && previous_size > (Py_ssize_t)next.key_size && previous[next.key_size] == '.' &&
        !memcmp(previous, next.key, next.key_size))
        Py_RETURN_NONE;
    members[0] = next;
    if (found == PLAIN) found = read_sample(end, last_dot, differs, members, &count, &next);
    if (found != PLAIN) return PyBool_FromLong(found == SHORT);
    size_t most = (size_t)(size - position) / BLOCK; /* of the samples, and of their entries */
    Batch *batch = PyMem_Calloc(1, sizeof(Batch));
    char *room = PyMem_Malloc(most * (sizeof(Row) + sizeof(Place) + sizeof(int64_t)));
    PyObject *signatures = PyList_New(0), *result = NULL;
    if (!batch || !room || !signatures) goto done;
    batch->data = (bytes_t)start;
    batch->rows = (Row *)room;
    batch->places = (Place *)(batch->rows + most);
    batch->hashes = (int64_t *)(batch->places + most);
    batch->ascending = 1;
    while (found == PLAIN && add_sample(batch, members, count)) {
        stop = next.start;
        members[0] = next;
        found = read_sample(end, last_dot, differs, members, &count, &next);
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

enum { RECORD, MEMBERS, CONTENT, MOST_ADDED = 32, EACH = 64 }; /* EACH: more than is put around a name and its data */

typedef struct {
    bytes_t data;
    Py_ssize_t size, rows_size, places_size;
    const char *rows, *places;
    PyObject *signatures, *added, *maps, *lists; /* lists: NULL if all entries are one bytes value */
    int form, last_dot;
} Samples;

/* Whether a number of bytes from an offset on lie in the data. */
static int within(const Samples *samples, int64_t offset, int64_t size) {
    return offset >= 0 && size >= 0 && offset <= samples->size && size <= samples->size - offset;
}

/* Add what is joined to a sample to its entries; returns how many there are then, or 0 if Python has to do it. */
static int add_joined(const Samples *samples, Py_ssize_t number, Entry *entries, int count) {
    PyObject *joined = PyList_GetItem(samples->added, number), *name, *value;
    if (!joined) return PyErr_Clear(), 0;
    if (joined == Py_None) return count;
    if (!PyDict_Check(joined) || PyDict_Size(joined) > MOST_ADDED) return 0;
    size_t total = 0;
    for (Py_ssize_t at = 0; PyDict_Next(joined, &at, &name, &value); count++) {
        Py_ssize_t name_size, size;
        char *data;
        if (!PyUnicode_Check(name) || !PyBytes_Check(value) || PyBytes_AsStringAndSize(value, &data, &size)) return 0;
        const char *text = PyUnicode_AsUTF8AndSize(name, &name_size);
        if (!text) return PyErr_Clear(), 0; /* not UTF-8 */
        entries[count] = (Entry){text, data, (size_t)name_size, (size_t)size, DELIMITED, {0}, 0};
        if ((total += (size_t)(size + name_size)) > MOST_BYTES) return 0;
        for (int other = 0; other < count; other++)
            if (!compare(entries[other].name, entries[other].name_size, text, (size_t)name_size)) return 0;
        if (samples->form != MEMBERS) continue;
        if (entries[0].size + 1 + (size_t)name_size >= 100) return 0;
        for (Py_ssize_t letter = 0; letter < name_size; letter++)
            if ((unsigned char)text[letter] > 126) return 0;
    }
    return count;
}

/* Make a whole number of at most 18 digits of text in the usual form; 0 if it has another. */
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

/* Make a float32 of text in the usual form; 0 if it has another, or is too large. */
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

/* Whether a float would not survive its way through Python, which makes a signalling NaN quiet. */
static int is_signalling(const Entry *entry) {
    uint32_t bits;
    memcpy(&bits, entry->data, sizeof bits);
    return (bits & 0x7FC00000) == 0x7F800000 && bits & 0x3FFFFF;
}

/* Make features of entries, as a map in the form of `records` says; returns how many there are, 0 if Python has to do
   it, and -1 if the map is none. */
static int map_entries(PyObject *map, Entry *entries, int count) {
    Entry made[MOST_ENTRIES + MOST_ADDED + 1];
    char *at;
    Py_ssize_t left;
    int features = 0;
    if (!map) return PyErr_Clear(), -1;
    if (map == Py_None) return 0;
    if (PyBytes_AsStringAndSize(map, &at, &left)) return PyErr_Clear(), -1;
    for (int32_t head[3]; left >= (Py_ssize_t)sizeof head; features++) { /* source, tag, length of the name */
        memcpy(head, at, sizeof head);
        left -= (Py_ssize_t)sizeof head;
        if (head[0] < 0 || head[0] >= count || head[2] < 0 || head[2] > left || features > MOST_ENTRIES) return -1;
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

/* Whether members can have a key of a record, which no reader of tars would read as another. */
static int names_members(const Entry *key, int last_dot) {
    bytes_t text = key->data, at = text + key->size, end = at;
    while (at > text && at[-1] != '/') at--;
    if (at == end || *text <= ' ' || *text > 126 || end[-1] <= ' ' || end[-1] > 126) return 0; /* space is stripped */
    if (!last_dot && memchr(at, '.', (size_t)(end - at))) return 0;
    return !memchr(text, 0, key->size) && !has(text, key->size, "._") && !has(text, key->size, "__meta__");
}

/* Make text of a number, the shortest from which it is read again, as NumPy writes it; 0 if Python has to do it. */
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
    if (bits << 1 && !(size >= 1e-4F && size < 1e6F)) return 0; /* or it has an exponent, in some versions of NumPy */
    do {
        PyOS_snprintf(out, sizeof entry->number, "%.*e", digits, (double)number);
        value = PyOS_string_to_double(out, NULL, NULL);
    } while ((float)value != number && ++digits < 9);
    if (!(bits & 0x7FFFFF) && bits << 1 && (digits > 6 || value != (double)number)) return 0; /* its neighbours are not as near */
    if (!(text = PyOS_double_to_string(value, 'r', 0, Py_DTSF_ADD_DOT_0, NULL))) return PyErr_Clear(), 0;
    entry->size = strlen(text);
    if (entry->size < sizeof entry->number) memcpy(out, text, entry->size);
    PyMem_Free(text);
    return entry->size < sizeof entry->number;
}

/* Give an entry of a record its kind, as `lists` says: the tag of its list, and whether it is all of that; returns 0 if
   Python has to do it, as there is no text of it for a member, and -1 if there is no such entry. */
static int give_kind(const Samples *samples, const Row *row, int number, Entry *entry) {
    PyObject *kinds = PyList_GetItem(samples->lists, (Py_ssize_t)row->kind);
    int64_t kind;
    char *data;
    Py_ssize_t size;
    if (!kinds || PyBytes_AsStringAndSize(kinds, &data, &size)) return PyErr_Clear(), -1;
    if (size < 16 * (number + 1)) return -1;
    memcpy(&kind, data + 16 * number, sizeof kind);
    entry->tag = kind & 0xFF;
    entry->listed = kind > 0xFF;
    if (entry->tag == FLOATS && !entry->listed && entry->size != 4) return -1;
    if (samples->form != MEMBERS || (entry->tag == DELIMITED && !entry->listed)) return 1;
    return entry->tag != DELIMITED && !entry->listed && as_text(entry);
}

/* The key and the entries of a sample; returns how many there are, 0 if Python has to do it, and -1 if it is none. */
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
    if (samples->lists && samples->form == MEMBERS && !names_members(entries, samples->last_dot)) return 0;
    for (int64_t entry = row.first; left > 0; entry++) {
        const char *stop = memchr(names, 0, (size_t)left);
        if (!stop || count > MOST_ENTRIES || entry >= samples->places_size / (Py_ssize_t)sizeof place) return -1;
        memcpy(&place, samples->places + entry * (int64_t)sizeof place, sizeof place);
        if (!within(samples, place.data, place.size)) return -1;
        entries[count++] =
            (Entry){names, samples->data + place.data, (size_t)(stop - names), (size_t)place.size, DELIMITED, {0}, 0};
        if (samples->form == MEMBERS && (size_t)row.key_size + 1 + entries[count - 1].name_size >= 100) return 0;
        if (samples->lists) {
            int given = give_kind(samples, &row, count - 2, &entries[count - 1]);
            if (given <= 0) return given;
        }
        left -= stop + 1 - names;
        names += stop + 1 - names;
    }
    if (samples->maps != Py_None) return map_entries(PyList_GetItem(samples->maps, (Py_ssize_t)row.kind), entries, count);
    return samples->added == Py_None ? count : add_joined(samples, number, entries, count);
}

/* Write what is made of a sample. */
static unsigned char *put_sample(unsigned char *out, const Entry *entries, int count, int form) {
    if (form == MEMBERS) {
        for (int number = 1; number < count; number++) out = put_member(out, entries, &entries[number]);
        return out;
    }
    const Entry *sorted[MOST_ENTRIES + MOST_ADDED + 1];
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

/* How much room an entry takes at most in what is made of it. */
static size_t room_of(const Entry *entry, int form) {
    return form == MEMBERS ? BLOCK + (entry->size + BLOCK - 1) / BLOCK * BLOCK : EACH + entry->name_size + entry->size;
}

PyDoc_STRVAR(records_doc, "records(data, rows, places, signatures, added, form[, maps, lists, last_dot])\n--\n\n"
"Make framed records of samples that were found, or for the form 1 members of another tar, or for 2 what digests are\n"
"computed of.\n\n"
"The first four arguments are those of the `Batch` (samples/grouping.py); `added` is None, or a list of dicts of bytes\n"
"with what each sample gets besides, None for nothing. `maps` is None, or for each signature the features that its\n"
"samples become, None if Python has to make them: for each the number of its entry, 0 for the key, the tag of its list\n"
"and the length of its name, as 32-bit integers, and the name; text becomes the numbers of the other lists. `lists` is\n"
"that of the batch, None if all entries are bytes, and `last_dot` the key rule. Returns what is made, and the size of it\n"
"for each sample, as unsigned 64-bit integers; None if there is an entry that is not plain, or two of one name.");

static PyObject *records(PyObject *module, PyObject *args) {
    PyObject *data, *made = NULL, *result = NULL;
    PyObject *lists = Py_None;
    Samples all = {.maps = Py_None};
    char *start;
    if (!PyArg_ParseTuple(
            args, "Sy#y#O!Oi|OOp", &data, &all.rows, &all.rows_size, &all.places, &all.places_size, &PyList_Type,
            &all.signatures, &all.added, &all.form, &all.maps, &lists, &all.last_dot)) return NULL;
    if (PyBytes_AsStringAndSize(data, &start, &all.size)) return NULL;
    if ((all.added != Py_None && !PyList_Check(all.added)) || (all.maps != Py_None && !PyList_Check(all.maps)) ||
        (lists != Py_None && !PyList_Check(lists)))
        return PyErr_Format(PyExc_TypeError, "a list, or None");
    all.lists = lists == Py_None ? NULL : lists;
    all.data = (bytes_t)start;
    Entry entries[MOST_ENTRIES + MOST_ADDED + 1];
    Py_ssize_t count = all.rows_size / (Py_ssize_t)sizeof(Row), used = 0, room = all.size + EACH;
    uint64_t *sizes = PyMem_Malloc((size_t)count * 8 + 1);
    if (!sizes || !(made = PyBytes_FromStringAndSize(NULL, room))) goto done;
    for (Py_ssize_t number = 0; number < count; number++) {
        int entry_count = read_entries(&all, number, entries);
        if (entry_count == 1 && all.form == MEMBERS) entry_count = 0; /* nothing but a key */
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

/* Put the part of a line of DALI's index that is about an entry; NULL if the member's name may have a blank. */
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
"The lines of samples in an index file of DALI; None if the name of a member may have a blank.\n\n"
"The first four arguments are those of the `Batch` (samples/grouping.py); `begin` is the offset of the data in the tar.");

static PyObject *index_lines(PyObject *module, PyObject *args) {
    PyObject *data, *made = NULL;
    Samples all = {.added = Py_None, .maps = Py_None};
    Py_ssize_t begin, used = 0, room = 0;
    char *start;
    if (!PyArg_ParseTuple(
            args, "Sy#y#O!n", &data, &all.rows, &all.rows_size, &all.places, &all.places_size, &PyList_Type, &all.signatures,
            &begin)) return NULL;
    if (PyBytes_AsStringAndSize(data, &start, &all.size)) return NULL;
    all.data = (bytes_t)start;
    Entry entries[MOST_ENTRIES + MOST_ADDED + 1];
    for (Py_ssize_t number = 0; number < all.rows_size / (Py_ssize_t)sizeof(Row); number++) {
        int count = read_entries(&all, number, entries);
        if (count < 2) {
            Py_XDECREF(made);
            return PyErr_Format(PyExc_ValueError, "the rows are not those of samples in these bytes");
        }
        Py_ssize_t needed = count * 256; /* of an entry, two names, two numbers and four blanks */
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

/* --- Examples --- */

enum { MOST_KINDS = 512 };

typedef struct {
    bytes_t data;
    Py_ssize_t size;
} Text;

/* The first of the bytes or the bytearray that has a part; NULL if there is no such part, as an error. */
static bytes_t part_of(PyObject *data, Py_ssize_t position, Py_ssize_t end) {
    char *start = PyByteArray_Check(data) ? PyByteArray_AsString(data) : PyBytes_AsString(data);
    if (!start) return NULL;
    Py_ssize_t size = PyByteArray_Check(data) ? PyByteArray_Size(data) : PyBytes_Size(data);
    if (position >= 0 && position <= end && end <= size) return (bytes_t)start;
    PyErr_Format(PyExc_ValueError, "the bytes from %zd to %zd of %zd", position, end, size);
    return NULL;
}

/* The data of a framed record, of which at least the framing is there; NULL if it is not whole, or a CRC is wrong. */
static bytes_t message_at(bytes_t at, bytes_t end, size_t *length) {
    bytes_t message = at + 12;
    uint64_t size = eight(at);
    if (size > (uint64_t)(end - at - FRAMING) || four_before(message) != masked(crc32c(0, at, 8))) return NULL;
    *length = (size_t)size;
    return four_before(message + size + 4) == masked(crc32c(0, message, *length)) ? message : NULL;
}

PyDoc_STRVAR(features_doc, "features(message, make)\n--\n\n"
"Return the features of an example by name; None for a message that has not the usual form.\n\n"
"Each is what `make` returns, a ParsedFeature (formats/example.py); its arguments are the same.");

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
    int64_t count, total, least, most, fewest, most_values; /* of examples, of sizes, and of the values of each */
} Sums;

typedef struct {
    Known known[MOST_KNOWN];
    uint64_t kinds[MOST_KINDS], counts[MOST_KINDS]; /* of features as bits, and of examples */
    int names, kind_count;
    Sums sums[MOST_KNOWN];
    unsigned char *numbers[MOST_KNOWN]; /* where those of the next example are put */
} Tally;

/* Add to the sums a feature of the usual form: its bytes, or its values if they are numbers, which are put together. */
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

/* Check and count framed records as long as they are examples of known kinds; returns where they end. */
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
"Check the records in a part of bytes or a bytearray as long as they are examples of the usual form.\n\n"
"Returns the position behind the last one, and how many there are of each kind, as unsigned 64-bit integers. `names`\n"
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
"Check records as `examples` does, and add up what their features have.\n\n"
"Returns what `examples` returns; six signed 64-bit integers for each name: how many examples have the feature, the sum,\n"
"the least and the most of the bytes that it has in each, or of its values if they are numbers, and the least and the\n"
"most of its values; and for each name the numbers of all examples as one packed list, without its length, or None if\n"
"its list is none of numbers.");

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
"The size of each of some framed records, as unsigned 64-bit integers; their CRCs are not checked.");

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

/* Whether values that are known to be so can be returned in a form of `columns`. */
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
"The values of examples in a column for each known feature, as long as they are of the usual form; and how many.\n\n"
"`messages` is a list of bytes, read from the one with the number `first` on; `names` is that of `examples`. `forms`\n"
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

/* Read records, check them, and put the numbers of their examples into columns, and where their texts are into `texts`;
   returns how many there are before the first that cannot be read or has not the usual form. */
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
"read, is damaged, or has not the usual form.\n\n"
"`spans` has three signed 64-bit integers for each record: the descriptor of its file, and where it starts and ends\n"
"there; `names` is that of `examples`; `widths` has a signed 64-bit integer for each name: the bytes that numbers take in\n"
"each example, whose column is a bytearray of int64, float32 or of what one bytes value holds; 0 for one bytes value,\n"
"whose column is a list; and -1 for none.");

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
"The data of framed records as a list, as long as they are whole and both of their CRCs match.\n\n"
"`buffers` is a list of bytes. `places` has three signed 64-bit integers for each record: the number of its buffer, and\n"
"where it starts and ends there.");

static PyObject *unframed(PyObject *module, PyObject *args) {
    PyObject *buffers, *found;
    const char *places;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "O!y#", &PyList_Type, &buffers, &places, &size)) return NULL;
    if (!(found = PyList_New(0))) return NULL;
    for (int64_t place[3]; size >= (Py_ssize_t)sizeof place; places += sizeof place, size -= sizeof place) {
        memcpy(place, places, sizeof place);
        PyObject *buffer = PyList_GetItem(buffers, (Py_ssize_t)place[0]), *data; /* which fails for a wrong number */
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

/* --- Rows of digests --- */

enum { ROW_SIZE = 32, SEVERAL = 1 }; /* SEVERAL: of bytes values, in place of the tag of their list */

/* How much room the details of a sample take. */
static size_t room_for_details(const Entry *entries, int count) {
    size_t room = 8;
    for (int number = 0; number < count; number++) room += 12 + entries[number].name_size + (number ? 0 : entries[number].size);
    return room;
}

/* Put the row of a sample, whose key is its first entry, and its details, as checking/rows.py has them. */
static unsigned char *put_details(unsigned char *out, unsigned char *row, const Entry *entries, int count, uint64_t offset) {
    const Entry *key = entries->data ? entries : NULL; /* of a record without a key, the first entry is none */
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
    uint64_t offset; /* of the first details among all */
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

/* The rows and their details as bytes, to be built into a result; 0 without memory, as an error. */
static int end_digested(Digested *all) {
    if (!all->rows && !(all->rows = PyBytes_FromStringAndSize(NULL, 0))) return 0;
    if (!all->details && !(all->details = PyBytes_FromStringAndSize(NULL, 0))) return 0;
    return !_PyBytes_Resize(&all->rows, all->count * ROW_SIZE) && !_PyBytes_Resize(&all->details, all->used);
}

PyDoc_STRVAR(sample_rows_doc, "sample_rows(data, rows, places, signatures, offset, maps)\n--\n\n"
"Make a row of digests for each sample that was found, and its details, as checking/rows.py has them; None if Python has\n"
"to do it.\n\n"
"The first four arguments are those of the `Batch` (samples/grouping.py); `offset` is that of the first details; `maps`\n"
"is that of `records`, and the first feature of each is the key.");

static PyObject *sample_rows(PyObject *module, PyObject *args) {
    PyObject *data, *result = NULL;
    Samples all = {.added = Py_None, .maps = Py_None};
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
    Entry entries[MOST_ENTRIES + MOST_ADDED + 1];
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

/* Read an example of the usual form as a key, without data if there is none, and entries; returns how many they are, or
   0 if Python has to do it. */
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

/* Note the entries that hold numbers or several values with their tags; 0 if one had another tag before, or is too many. */
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
"Make a row of digests and its details for each framed record in a part of bytes or a bytearray, as long as they are\n"
"whole examples of the usual form.\n\n"
"Returns the position behind the last one; the rows; the details, the first of which are at `offset`; and a list of the\n"
"names and the kinds of the features that hold numbers, or several values.");

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
"The digest by XXH64 of the data of each framed record in a part of bytes or a bytearray, as unsigned 64-bit integers, as\n"
"long as records are whole and both of their CRCs match; and the position behind the last one.");

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

/* --- Samples of records --- */

enum { LISTED = 0x100 };

/* The features of a sample: their numbers as they come, and how many values each has, -1 where samples differ. */
typedef struct {
    unsigned char order[MOST_ENTRIES];
    int64_t counts[MOST_ENTRIES];
    int size;
} Layout;

typedef struct {
    Known known[MOST_KNOWN];
    Feature features[MOST_KNOWN]; /* of the last record */
    const char *forms, *stem;
    Py_ssize_t stem_size;
    int names, key, kinds;
    Row *rows;
    Place *places;
    char *keys; /* those that are made */
    Py_ssize_t count, entries, keys_size, most;
    Layout layouts[MOST_SIGNATURES];
} Found;

/* Whether protobuf writes packed integers like that: in as few bytes as possible. */
static int are_shortest(bytes_t at, bytes_t end) {
    unsigned char made[10];
    uint64_t number;
    for (bytes_t stop; at < end; at = stop) {
        if (!(stop = read_number(at, end, &number))) return 0;
        if (put_varint(made, number) - made != stop - at || memcmp(made, at, (size_t)(stop - at))) return 0;
    }
    return 1;
}

/* Find one value of a feature, or all of its list; 0 if protobuf would write it in another way. */
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

/* Which layout the last record has, given the bits of its features; -1 if there is no room for it. */
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

/* Find the key of the last record, or make one, whose offset is then that in `keys`; 0 if Python has to do it. */
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
"Find the samples in framed records from a position on, whose CRCs were checked, as long as they are plain: examples of\n"
"the usual form, which protobuf would write again as they are.\n\n"
"`names` is that of `examples`, with a kind for each; `forms` has a letter for each: v for an entry of one value, l for a\n"
"list, and - for none. `key` is the number of the feature with the key; for -1, keys are made of a stem and the number of\n"
"the record, from `number` on. Returns the arguments of a `Batch` (api/values.py) of about `most` samples or entries, with\n"
"the made keys at the end of its data; None if the first record is not plain.");

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

/* --- Rows of CSV --- */

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

/* Read the row at a place of a file as a dict of its cells but that of the key, if it has that key; NULL without an
   error if it has not, or if Python has to do it, which makes `odd` 1. */
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

/* --- Tables of hashes --- */

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

/* Sorts numbers in place by the byte at `shift`, and the numbers with the same one by the bytes below it. */
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

PyDoc_STRVAR(extend_doc, "extend(crc, data[, by_table])\n--\n\nThe CRC-32C of bytes, going on from that of those before.");

static PyObject *extend(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    char *data;
    Py_ssize_t size;
    unsigned long before = count < 2 ? (unsigned long)PyErr_BadArgument() : PyLong_AsUnsignedLong(args[0]);
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(args[1], &data, &size)) return NULL;
    return PyLong_FromUnsignedLong((count > 2 ? crc_by_table : crc32c)((uint32_t)before, (bytes_t)data, (size_t)size));
}

static PyMethodDef methods[] = {
    {"samples", samples, METH_VARARGS, samples_doc},
    {"records", records, METH_VARARGS, records_doc},
    {"index_lines", index_lines, METH_VARARGS, index_lines_doc},
    {"examples", examples, METH_VARARGS, examples_doc},
    {"sums", sums, METH_VARARGS, sums_doc},
    {"features", features, METH_VARARGS, features_doc},
    {"sizes", sizes, METH_VARARGS, sizes_doc},
    {"columns", columns, METH_VARARGS, columns_doc},
    {"rows", rows, METH_VARARGS, rows_doc},
    {"unframed", unframed, METH_VARARGS, unframed_doc},
    {"sample_rows", sample_rows, METH_VARARGS, sample_rows_doc},
    {"record_rows", record_rows, METH_VARARGS, record_rows_doc},
    {"record_digests", record_digests, METH_VARARGS, record_digests_doc},
    {"parsed", parsed, METH_VARARGS, parsed_doc},
    {"table", table, METH_VARARGS, table_doc},
    {"joined", joined, METH_VARARGS, joined_doc},
    {"hashes", hashes, METH_VARARGS, hashes_doc},
    {"ordered", ordered, METH_VARARGS, ordered_doc},
    {"find", find, METH_VARARGS, find_doc},
    {"extend", (PyCFunction)(void *)extend, METH_FASTCALL, extend_doc},
    {NULL, NULL, 0, NULL},
};

static int begin(PyObject *module) {
    for (int byte = 0; byte < 256; byte++) table_of_crc32[byte] = crc_of_byte(byte, 0xEDB88320);
    make_blank_header();
    if (PyModule_AddIntConstant(module, "hardware", begin_crc())) return -1;
    return PyModule_AddIntConstant(module, "api", 17);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)begin}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_native", .m_size = 0, .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
