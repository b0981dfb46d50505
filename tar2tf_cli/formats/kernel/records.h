/* CRC-32C, tf.train.Examples of the usual form, and random orders: shared by the kernel and the op of TensorFlow.

   A message has the usual form if protobuf would write the same bytes: each feature once, numbers packed. All functions are
   static, need neither Python nor TensorFlow, and read only inside the bytes that they are given. */

#ifndef TAR2TF_RECORDS_H
#define TAR2TF_RECORDS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <nmmintrin.h>
#include <wmmintrin.h>
#define HARDWARE __attribute__((target("sse4.2,pclmul")))
#define CRC_8(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define CRC_1(crc, byte) _mm_crc32_u8((crc), (byte))
#define has_hardware() (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"))
#define THIRD 512 /* bytes per block of which the CRC is computed in three parallel parts */
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define HARDWARE
#define CRC_8(crc, word) __crc32cd((crc), (word))
#define CRC_1(crc, byte) __crc32cb((crc), (byte))
#define has_hardware() 1
#endif

typedef const unsigned char *bytes_t;

/* --- CRC-32C --- */

static uint32_t tables[8][256];

static uint32_t crc_of_byte(int byte, uint32_t polynomial) {
    uint32_t crc = (uint32_t)byte;
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
    return crc;
}

static void make_tables(void) {
    for (int byte = 0; byte < 256; byte++) tables[0][byte] = crc_of_byte(byte, 0x82F63B78);
    for (int table = 1; table < 8; table++)
        for (int byte = 0; byte < 256; byte++)
            tables[table][byte] = tables[table - 1][byte] >> 8 ^ tables[0][tables[table - 1][byte] & 0xFF];
}

static uint64_t eight(bytes_t data) { /* compilers combine this into one load */
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
/* Advance a CRC over zero bytes, given the power of x that is 8 times their number, minus 33. */
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
        crc = shifted(crc, 0x170076FA) ^ shifted(second, 0xDD7E3B0C) ^ third; /* powers for two THIRDs and one THIRD */
    }
#endif
    for (; size >= 8; data += 8, size -= 8) crc = CRC_8(crc, eight(data));
    for (; size; data++, size--) crc = CRC_1(crc, *data);
    return ~crc;
}
#endif

/* Compute the CRC of bytes, continuing from a previous one. */
static uint32_t (*crc32c)(uint32_t before, bytes_t data, size_t size) = crc_by_table;

/* Initialise the CRC, in hardware if available; returns whether it is. */
static int begin_crc(void) {
    make_tables();
#ifdef HARDWARE
    if (has_hardware()) crc32c = crc_by_hardware;
#endif
    return crc32c != crc_by_table;
}

static uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xA282EAD8; }

/* --- Examples --- */

enum { MOST_KNOWN = 64, HEAD = 20, FRAMING = 16, DELIMITED = 0x0A, VALUE = 0x12, FLOATS = 0x12, INTEGERS = 0x1A };

typedef struct {
    int32_t kind, count, size, name_size, valued; /* tag of the list, number of values, and their bytes; -1 for any */
    bytes_t name, values; /* if `valued`: `count` expected values, each -1 for any */
} Known;

typedef struct {
    bytes_t name, list, end; /* end: of both the list and the feature */
    size_t name_size;
    int kind; /* the tag of the list */
} Feature;

/* Return the content of a length-delimited field with a tag, which ends at `stop`; NULL for any other field, or past
   the end. */
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

/* Read a feature of the usual form, a name and one list; 0 for any other form. */
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

/* Read a varint; NULL if it is longer than ten bytes, or incomplete. */
static bytes_t read_number(bytes_t at, bytes_t end, uint64_t *number) {
    *number = 0;
    for (int shift = 0; shift < 70 && at < end; shift += 7) {
        *number |= (uint64_t)(*at & 0x7F) << shift;
        if (*at++ < 0x80) return at;
    }
    return NULL;
}

/* Return the number of a list's values, and their bytes; -1 if numbers are not packed, as in the usual form. */
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

/* Whether a packed list of integers has the expected values. */
static int has_values(const Known *wanted, bytes_t at, bytes_t end) {
    uint64_t number, other;
    if (at < end) at = content(at, end, DELIMITED, &end);
    for (int32_t value = 0; value < wanted->count; value++) {
        memcpy(&other, wanted->values + 8 * value, 8);
        if (!(at = read_number(at, end, &number)) || (other != number && other != UINT64_MAX)) return 0;
    }
    return 1;
}

/* Whether a list has the usual form and the expected values. */
static int fits(const Known *wanted, const Feature *feature) {
    int64_t size, count = count_values(feature, &size);
    if (count < 0 || (wanted->kind >= 0 && wanted->kind != feature->kind)) return 0;
    if ((wanted->count >= 0 && wanted->count != count) || (wanted->size >= 0 && wanted->size != size)) return 0;
    return !wanted->valued || (feature->kind == INTEGERS && has_values(wanted, feature->list, feature->end));
}

/* Parse known features in the format of `examples`; returns their number, or -1. */
static int read_known(bytes_t at, ptrdiff_t size, Known *known) {
    int count = 0;
    for (bytes_t last = at + size; at < last; count++) {
        if (count == MOST_KNOWN || last - at < HEAD) return -1;
        Known *feature = &known[count];
        memcpy(feature, at, HEAD);
        feature->name = at + HEAD;
        if (feature->name_size < 0 || feature->name_size > last - feature->name) return -1;
        feature->values = feature->name + feature->name_size;
        if (feature->valued && (feature->count < 0 || feature->count > (last - feature->values) / 8)) return -1;
        at = feature->values + (feature->valued ? 8 * (ptrdiff_t)feature->count : 0);
    }
    return count;
}

/* Whether a message is an example of known features in the usual form, each once; sets a bit in `found` for each. */
static int is_usual(bytes_t at, bytes_t end, const Known *known, int names, uint64_t *found, Feature *features) {
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
        if (features) features[guess] = feature;
    }
    return 1;
}

/* --- Orders --- */

static inline uint64_t scattered(uint64_t number) { /* finalizer of splitmix64 */
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9;
    number = (number ^ number >> 27) * 0x94D049BB133111EB;
    return number ^ number >> 31;
}

/* The number at a position of the random order of 0 to `total - 1` that belongs to a seed: a Feistel network over an
   even number of bits, applied until the number is in range. It needs no state, and takes the same time for any position. */
static inline uint64_t permuted(uint64_t seed, uint64_t position, uint64_t total) {
    int half = 1;
    while (half < 32 && (uint64_t)1 << 2 * half < total) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1, keys[6];
    for (int round = 0; round < 6; round++) keys[round] = scattered(seed + (uint64_t)(round + 1) * 0x9E3779B97F4A7C15);
    do {
        uint64_t left = position >> half, right = position & mask;
        for (int round = 0; round < 6; round++) {
            uint64_t next = left ^ (scattered(right ^ keys[round]) & mask);
            left = right;
            right = next;
        }
        position = left << half | right;
    } while (position >= total);
    return position;
}

#endif
