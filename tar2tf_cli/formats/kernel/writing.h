/* Writers of records and tar members. Part of kernel.c, which includes it once. */

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
    int tag;                  /* tag of its list: DELIMITED, FLOATS or INTEGERS */
    unsigned char number[24]; /* buffer for generated data: a number, or its text */
    int listed;               /* whether the data is a whole list rather than one value */
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

/* Write the bytes of which a sample's digest is computed, as in flow/select.py: all entries but the key. */
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

static unsigned char blank_header[BLOCK]; /* header of a member without name and data */
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
