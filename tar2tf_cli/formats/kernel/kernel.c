/* The plain part of reading tars and TFRecords, where Python takes most of its time for small samples.

   Each function stops at the first thing that is not plain, and Python goes on from there. So nothing is reported here,
   and every rule has its full form in Python only: headers in formats/tar.py, keys and batches in samples/grouping.py,
   messages in formats/example_parser.py, framing in formats/tfrecord.py. Only the limited API of Python 3.10 is used. */

#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <nmmintrin.h>
#include <wmmintrin.h>
#define HARDWARE __attribute__((target("sse4.2,pclmul")))
#define CRC_8(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define CRC_1(crc, byte) _mm_crc32_u8((crc), (byte))
#define has_hardware() (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"))
#define THIRD 512 /* of the bytes whose CRC is computed in three parts at once */
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define HARDWARE
#define CRC_8(crc, word) __crc32cd((crc), (word))
#define CRC_1(crc, byte) __crc32cb((crc), (byte))
#define has_hardware() 1
#endif

typedef const unsigned char *bytes_t;
PyAPI_FUNC(int) _PyBytes_Resize(PyObject **, Py_ssize_t); /* of the stable ABI, but not in its headers */

/* --- CRC-32C --- */

static uint32_t tables[8][256];

static void make_tables(void) {
    for (int byte = 0; byte < 256; byte++) {
        uint32_t crc = (uint32_t)byte;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78 : 0);
        tables[0][byte] = crc;
    }
    for (int table = 1; table < 8; table++)
        for (int byte = 0; byte < 256; byte++)
            tables[table][byte] = tables[table - 1][byte] >> 8 ^ tables[0][tables[table - 1][byte] & 0xFF];
}

static uint64_t eight(bytes_t data) { /* compilers make one load of it */
    return (uint64_t)data[0] | (uint64_t)data[1] << 8 | (uint64_t)data[2] << 16 | (uint64_t)data[3] << 24 |
           (uint64_t)data[4] << 32 | (uint64_t)data[5] << 40 | (uint64_t)data[6] << 48 | (uint64_t)data[7] << 56;
}

static uint32_t four_before(bytes_t end) { return (uint32_t)(eight(end - 8) >> 32); }

static uint32_t crc_by_table(uint32_t before, bytes_t data, size_t size) {
    uint32_t crc = ~before;
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word = eight(data) ^ crc;
        crc = 0;
        for (int byte = 0; byte < 8; byte++) crc ^= tables[7 - byte][word >> 8 * byte & 0xFF];
    }
    for (; size; data++, size--) crc = crc >> 8 ^ tables[0][(crc ^ *data) & 0xFF];
    return ~crc;
}

#ifdef THIRD
/* Go on by as many zeros as the power of x says, which is 8 times their number, minus 33. */
HARDWARE static uint32_t shifted(uint32_t crc, uint32_t power) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128(crc), _mm_cvtsi64_si128(power), 0);
    return CRC_8(0, (uint64_t)_mm_cvtsi128_si64(product));
}
#endif

#ifdef HARDWARE
HARDWARE static uint32_t crc_by_hardware(uint32_t before, bytes_t data, size_t size) {
    uint32_t crc = ~before;
#ifdef THIRD
    for (; size >= 3 * THIRD; data += 3 * THIRD, size -= 3 * THIRD) {
        uint32_t second = 0, third = 0;
        for (int at = 0; at < THIRD; at += 8) {
            crc = CRC_8(crc, eight(data + at));
            second = CRC_8(second, eight(data + THIRD + at));
            third = CRC_8(third, eight(data + 2 * THIRD + at));
        }
        crc = shifted(crc, 0x170076FA) ^ shifted(second, 0xDD7E3B0C) ^ third; /* by 2 and 1 THIRDs */
    }
#endif
    for (; size >= 8; data += 8, size -= 8) crc = CRC_8(crc, eight(data));
    for (; size; data++, size--) crc = CRC_1(crc, *data);
    return ~crc;
}
#endif

/* That of bytes, going on from that of the bytes before them. */
static uint32_t (*crc32c)(uint32_t before, bytes_t data, size_t size) = crc_by_table;

static uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xA282EAD8; }

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

static size_t delimited(size_t size) { return 1 + varint_size(size) + size; }

static unsigned char *put_delimited(unsigned char *out, unsigned char tag, size_t size, const void *data) {
    *out++ = tag;
    out = put_varint(out, size);
    if (!data) return out;
    memcpy(out, data, size);
    return out + size;
}

static size_t entry_size(const Member *entry) {
    return delimited(entry->name_size) + delimited(delimited(delimited(entry->size)));
}

/* Write a framed record of entries in the order of their names. */
static unsigned char *put_record(unsigned char *out, const Member **entries, int count) {
    size_t total = 0;
    for (int entry = 0; entry < count; entry++) total += delimited(entry_size(entries[entry]));
    unsigned char *message = put_number(out, delimited(total), 8);
    message = put_number(message, masked(crc32c(0, out, 8)), 4);
    out = put_delimited(message, 0x0A, total, NULL);
    for (int number = 0; number < count; number++) {
        const Member *entry = entries[number];
        out = put_delimited(out, 0x0A, entry_size(entry), NULL);
        out = put_delimited(out, 0x0A, entry->name_size, entry->name);
        out = put_delimited(out, 0x12, delimited(delimited(entry->size)), NULL);
        out = put_delimited(out, 0x0A, delimited(entry->size), NULL);
        out = put_delimited(out, 0x0A, entry->size, entry->data);
    }
    return put_number(out, masked(crc32c(0, message, (size_t)(out - message))), 4);
}

/* --- Samples --- */

typedef struct {
    char names[MOST_NAMES]; /* of the entries as they come, each ended by a NUL */
    size_t size;
    Py_ssize_t samples;
} Signature;

typedef struct {
    unsigned char *out;
    uint64_t *sizes;
    int64_t *hashes;
    Py_ssize_t count;
    Signature signatures[MOST_SIGNATURES];
    int kinds, kind, ascending; /* the number of signatures, and which one the last sample has */
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

/* Count the sample's combination of names; 0 if there is no room for it. */
static int add_signature(Batch *batch, const Member *members, int count) {
    char names[MOST_NAMES];
    size_t size = 0;
    for (int member = 0; member < count; member++) {
        if (size + members[member].name_size + 1 > MOST_NAMES) return 0;
        memcpy(names + size, members[member].name, members[member].name_size);
        size += members[member].name_size;
        names[size++] = 0;
    }
    int kind = 0;
    Signature *known = batch->signatures;
    while (kind < batch->kinds && (known->size != size || memcmp(known->names, names, size))) kind++, known++;
    if (kind == MOST_SIGNATURES) return 0;
    if (kind == batch->kinds) {
        batch->kinds++;
        memcpy(known->names, names, size);
        known->size = size;
    }
    known->samples++;
    batch->kind = kind;
    return 1;
}

/* Add a sample's record; 0 if the sample is left to Python. */
static int add_sample(Batch *batch, const Member *members, int count) {
    Member key = {.name = "__key__", .name_size = 7, .data = members->key, .size = members->key_size};
    const Member *sorted[MOST_ENTRIES + 1] = {&key};
    for (int number = 0; number < count; number++) {
        const Member *member = &members[number];
        int place = number + 1;
        for (; place; place--) {
            const Member *before = sorted[place - 1];
            if (compare(member->name, member->name_size, before->name, before->name_size) >= 0) break;
            sorted[place] = before;
        }
        sorted[place] = member;
    }
    PyObject *text = PyUnicode_FromStringAndSize((const char *)members->key, (Py_ssize_t)members->key_size);
    if (!text) return PyErr_Clear(), 0; /* not UTF-8 */
    int64_t hash = (int64_t)PyObject_Hash(text);
    Py_DECREF(text);
    if (!add_signature(batch, members, count)) return 0;
    if (!batch->count) batch->first = *members;
    else if (compare(members->key, members->key_size, batch->last.key, batch->last.key_size) <= 0) batch->ascending = 0;
    batch->last = *members;
    unsigned char *end = put_record(batch->out, sorted, count + 1);
    batch->sizes[batch->count] = (uint64_t)(end - batch->out);
    batch->hashes[batch->count++] = hash;
    batch->out = end;
    return 1;
}

PyDoc_STRVAR(records_doc, "records(data, position, last_dot, differs, previous)\n--\n\n"
"Make the framed records of the whole samples from a tar header at a position on, as long as they are plain.\n\n"
"Returns the arguments of a `Batch` (samples/grouping.py); None if the header may belong to the same sample as\n"
"`previous`, a member's name; or else, without any record, whether more bytes are needed to tell. `last_dot` is the\n"
"key rule, and `differs` says whether names may be split in which the two rules differ.");

static PyObject *records(PyObject *module, PyObject *args) {
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
    Py_ssize_t most = (size - position) / BLOCK; /* and a record is shorter than the members that it is made of */
    Batch *batch = PyMem_Calloc(1, sizeof(Batch));
    uint64_t *numbers = PyMem_Malloc((size_t)most * 16);
    PyObject *signatures = PyList_New(0), *made = PyBytes_FromStringAndSize(NULL, size - position), *result = NULL;
    if (!batch || !numbers || !made || !signatures) goto done;
    *batch = (Batch){
        (unsigned char *)PyBytes_AsString(made), .sizes = numbers, .hashes = (int64_t *)numbers + most, .ascending = 1};
    while (found == PLAIN && add_sample(batch, members, count)) {
        stop = next.start;
        members[0] = next;
        found = read_sample(end, last_dot, differs, members, &count, &next);
    }
    for (int kind = 0; kind < batch->kinds; kind++) {
        const Signature *known = &batch->signatures[kind];
        PyObject *pair = Py_BuildValue("y#n", known->names, (Py_ssize_t)known->size, known->samples);
        int failed = !pair || PyList_Append(signatures, pair);
        Py_XDECREF(pair);
        if (failed) goto done;
    }
    if (_PyBytes_Resize(&made, (char *)batch->out - PyBytes_AsString(made))) goto done;
    result = !batch->count ? PyBool_FromLong(0) : Py_BuildValue(
        "Oy#y#s#s#OOinn", made, batch->sizes, batch->count * 8, batch->hashes, batch->count * 8, batch->first.key,
        (Py_ssize_t)batch->first.key_size, batch->last.key, (Py_ssize_t)batch->last.key_size,
        batch->ascending ? Py_True : Py_False, signatures, batch->kind,
        (Py_ssize_t)(batch->last.start - (bytes_t)start), (Py_ssize_t)(stop - (bytes_t)start));
done:
    if (!result && !PyErr_Occurred()) PyErr_NoMemory();
    PyMem_Free(batch);
    PyMem_Free(numbers);
    Py_XDECREF(made);
    Py_XDECREF(signatures);
    return result;
}

/* --- Examples --- */

enum { MOST_KNOWN = 64, MOST_KINDS = 512, HEAD = 20, FRAMING = 16, DELIMITED = 0x0A, VALUE = 0x12, FLOATS = 0x12, INTEGERS = 0x1A };

typedef struct {
    int32_t kind, count, size, name_size, valued; /* the tag of its list, its values, and their bytes; -1 for any */
    bytes_t name, values; /* where `valued`: as many as `count`, each -1 for any */
} Known;

typedef struct {
    bytes_t name, list, end; /* end: of the list and the feature */
    size_t name_size;
    int kind; /* the tag of the list */
} Feature;

/* The content of a field with this tag and a length, which ends at `stop`; NULL for any other, and past the end. */
static bytes_t content(bytes_t at, bytes_t end, int tag, bytes_t *stop) {
    size_t length = 0;
    if (at >= end || *at++ != tag) return NULL;
    for (int shift = 0; shift < 28 && at < end; shift += 7) {
        length |= (size_t)(*at & 0x7F) << shift;
        if (*at++ > 0x7F) continue;
        if (length > (size_t)(end - at)) return NULL;
        *stop = at + length;
        return at;
    }
    return NULL;
}

/* Read a feature of the usual form: a name, and one list; 0 for any other. */
static int read_feature(bytes_t at, bytes_t end, Feature *feature) {
    bytes_t stop;
    if (!(at = content(at, end, DELIMITED, &feature->end))) return 0;
    if (!(feature->name = content(at, feature->end, DELIMITED, &stop))) return 0;
    feature->name_size = (size_t)(stop - feature->name);
    if (!(at = content(stop, feature->end, VALUE, &stop)) || stop != feature->end || at == stop) return 0;
    feature->kind = *at;
    if (feature->kind != DELIMITED && feature->kind != FLOATS && feature->kind != INTEGERS) return 0;
    feature->list = content(at, feature->end, feature->kind, &stop);
    return feature->list && stop == feature->end;
}

/* Read a number; NULL if it is longer than ten bytes, or does not end. */
static bytes_t read_number(bytes_t at, bytes_t end, uint64_t *number) {
    *number = 0;
    for (int shift = 0; shift < 70 && at < end; shift += 7) {
        *number |= (uint64_t)(*at & 0x7F) << shift;
        if (*at++ < 0x80) return at;
    }
    return NULL;
}

/* How many values a list has, and their bytes; -1 if it has not the usual form, in which numbers are packed. */
static int64_t count_values(const Feature *feature, int64_t *size) {
    int64_t count = 0, continued = 0;
    bytes_t at = feature->list, end = feature->end, stop;
    *size = 0;
    if (feature->kind == DELIMITED) {
        for (; at < end; at = stop, count++) {
            if (!(at = content(at, end, DELIMITED, &stop))) return -1;
            *size += stop - at;
        }
        return count;
    }
    if (at == end) return 0;
    if (!(at = content(at, end, DELIMITED, &stop)) || stop != end) return -1;
    *size = end - at;
    if (feature->kind == FLOATS) return *size % 4 ? -1 : *size / 4;
    for (; at < end && continued < 10; at++) {
        continued = *at > 0x7F ? continued + 1 : 0;
        count += !continued;
    }
    return continued ? -1 : count;
}

/* Whether a packed list of integers has the values that are wanted. */
static int has_values(const Known *wanted, bytes_t at, bytes_t end) {
    uint64_t number, other;
    if (at < end) at = content(at, end, DELIMITED, &end);
    for (int32_t value = 0; value < wanted->count; value++) {
        memcpy(&other, wanted->values + 8 * value, 8);
        if (!(at = read_number(at, end, &number)) || (other != number && other != UINT64_MAX)) return 0;
    }
    return 1;
}

/* Whether a list has the usual form, and the values that are wanted. */
static int fits(const Known *wanted, const Feature *feature) {
    int64_t size, count = count_values(feature, &size);
    if (count < 0 || (wanted->kind >= 0 && wanted->kind != feature->kind)) return 0;
    if ((wanted->count >= 0 && wanted->count != count) || (wanted->size >= 0 && wanted->size != size)) return 0;
    return !wanted->valued || (feature->kind == INTEGERS && has_values(wanted, feature->list, feature->end));
}

/* Whether a message is an example of known features in the usual form, each once; which ones are bits of `found`. */
static int is_usual(bytes_t at, bytes_t end, const Known *known, int names, uint64_t *found) {
    Feature feature;
    bytes_t stop;
    if (!(at = content(at, end, DELIMITED, &stop)) || stop != end) return 0;
    for (int guess = *found = 0; at < end; at = feature.end, guess++) {
        if (!read_feature(at, end, &feature)) return 0;
        int32_t tried = 0, name_size = (int32_t)feature.name_size;
        for (; tried < names; tried++, guess++) {
            guess = guess < names ? guess : 0;
            if (known[guess].name_size == name_size && !memcmp(known[guess].name, feature.name, feature.name_size)) break;
        }
        if (tried == names || *found >> guess & 1) return 0;
        *found |= (uint64_t)1 << guess;
        if (!fits(&known[guess], &feature)) return 0;
    }
    return 1;
}

PyDoc_STRVAR(features_doc, "features(message, make)\n--\n\n"
"Return the features of an example by name; None for a message that has not the usual form.\n\n"
"Each is what `make` returns, a ParsedFeature (formats/example_parser.py); its arguments are the same.");

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

PyDoc_STRVAR(examples_doc, "examples(data, position, end, names, kinds)\n--\n\n"
"Check the records in a part of bytes or a bytearray as long as they are examples of the usual form.\n\n"
"Returns the position behind the last one, and how many there are of each kind, as unsigned 64-bit integers. `names`\n"
"has, for each known feature, the tag of its list, the number of its values, their bytes (-1 for any), the length of\n"
"its name, and whether values follow, as 32-bit integers; the name; and these values, as 64-bit integers, -1 for any.\n"
"`kinds` has the combinations of features, as bits of 64-bit integers.");

static PyObject *examples(PyObject *module, PyObject *args) {
    PyObject *data;
    Py_ssize_t position, names_size, kinds_size, size, most_size;
    const char *names, *kinds;
    if (!PyArg_ParseTuple(args, "Onny#y#", &data, &position, &size, &names, &names_size, &kinds, &kinds_size)) return NULL;
    char *start = PyByteArray_Check(data) ? PyByteArray_AsString(data) : PyBytes_AsString(data);
    if (!start) return NULL;
    most_size = PyByteArray_Check(data) ? PyByteArray_Size(data) : PyBytes_Size(data);
    if (position < 0 || position > size || size > most_size) goto wrong;
    Known known[MOST_KNOWN];
    uint64_t wanted[MOST_KINDS], counts[MOST_KINDS] = {0}, found, kind = 0, most = (uint64_t)kinds_size / 8;
    int count = 0;
    for (bytes_t at = (bytes_t)names, last = at + names_size; at < last; count++) {
        if (count == MOST_KNOWN || last - at < HEAD) goto wrong;
        Known *feature = &known[count];
        memcpy(feature, at, HEAD);
        feature->name = at + HEAD;
        if (feature->name_size < 0 || feature->name_size > last - feature->name) goto wrong;
        feature->values = feature->name + feature->name_size;
        if (feature->valued && (feature->count < 0 || feature->count > (last - feature->values) / 8)) goto wrong;
        at = feature->values + (feature->valued ? 8 * (Py_ssize_t)feature->count : 0);
    }
    if (kinds_size > (Py_ssize_t)sizeof wanted) goto wrong;
    memcpy(wanted, kinds, most * 8);
    bytes_t at = (bytes_t)start + position, end = (bytes_t)start + size;
    Py_BEGIN_ALLOW_THREADS
    while (end - at >= FRAMING) {
        uint64_t length = eight(at), tried = 0;
        bytes_t message = at + 12;
        if (length > (uint64_t)(end - at - FRAMING) || four_before(message) != masked(crc32c(0, at, 8))) break;
        if (!is_usual(message, message + length, known, count, &found)) break;
        if (four_before(message + length + 4) != masked(crc32c(0, message, (size_t)length))) break;
        for (; tried < most && wanted[kind] != found; tried++) kind = kind + 1 < most ? kind + 1 : 0;
        if (tried == most) break;
        counts[kind]++;
        at = message + length + 4;
    }
    Py_END_ALLOW_THREADS
    return Py_BuildValue("ny#", (Py_ssize_t)(at - (bytes_t)start), counts, (Py_ssize_t)most * 8);
wrong:
    return PyErr_Format(PyExc_ValueError, "no such bytes, or more than %d names or %d kinds", MOST_KNOWN, MOST_KINDS);
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
    {"records", records, METH_VARARGS, records_doc},
    {"examples", examples, METH_VARARGS, examples_doc},
    {"features", features, METH_VARARGS, features_doc},
    {"extend", (PyCFunction)(void *)extend, METH_FASTCALL, extend_doc},
    {NULL, NULL, 0, NULL},
};

static int begin(PyObject *module) {
    make_tables();
#ifdef HARDWARE
    if (has_hardware()) crc32c = crc_by_hardware;
#endif
    if (PyModule_AddIntConstant(module, "hardware", crc32c != crc_by_table)) return -1;
    return PyModule_AddIntConstant(module, "api", 5);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)begin}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_native", .m_size = 0, .m_methods = methods, .m_slots = slots};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
