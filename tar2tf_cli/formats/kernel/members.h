/* Plain members of a tar. Part of kernel.c, which includes it once. */

enum { BLOCK = 512, MOST_ENTRIES = 32, MOST_NAMES = 512, MOST_SIGNATURES = 16, MOST_BYTES = 1 << 18 };
enum { LAST = 2, PLAIN = 1, SHORT = 0, ODD = -1 };
enum { MOST_ZEROS = 40 * BLOCK }; /* the padding that writers use; Python handles any other amount */

typedef struct {
    char name[100]; /* the entry's name: the extension, in lower case if the key rule requires it */
    bytes_t start, key, data, next; /* start: offset of the first header */
    size_t name_size, key_size, size;
} Member;

static int has(bytes_t text, size_t size, const char *part) {
    size_t length = strlen(part);
    for (size_t at = 0; at + length <= size; at++)
        if (text[at] == (unsigned char)part[0] && !memcmp(text + at, part, length)) return 1;
    return 0;
}

/* Parse a number of exactly `digits` octal digits; -1 for anything else. */
static int64_t octal(bytes_t field, int digits) {
    int64_t number = 0;
    for (int digit = 0; digit < digits; digit++) {
        if (field[digit] < '0' || field[digit] > '7') return -1;
        number = number << 3 | (field[digit] - '0');
    }
    return number;
}

/* Return the size in a header; -1 if size or checksum is not in the usual format. */
static int64_t plain_size(bytes_t header) {
    uint64_t total = 8 * ' ';
    for (int half = 0; half < BLOCK; half += 256) {
        uint16_t sum = 0; /* 16 bits hold the sum of 256 bytes, and compilers vectorise it */
        for (int at = half; at < half + 256; at++) sum = (uint16_t)(sum + header[at]);
        total += sum;
    }
    for (int at = 148; at < 156; at++) total -= header[at];
    int ended = (header[154] == 0 && header[155] == ' ') || (header[154] == ' ' && header[155] == 0);
    ended = ended && (header[135] == 0 || header[135] == ' ');
    return ended && octal(header + 148, 6) == (int64_t)total ? octal(header + 124, 11) : -1;
}

/* Whether an extended header contains only times, as webdataset's do, in records `LENGTH KEY=VALUE\n`. */
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

/* Whether an archive ends at a position in the usual way: with two blocks of zeros or a few more, and nothing else. */
static int ends_at(bytes_t position, bytes_t end) {
    static const unsigned char zeros[MOST_ZEROS];
    size_t size = (size_t)(end - position);
    return size >= 2 * BLOCK && size <= MOST_ZEROS && size % BLOCK == 0 && !memcmp(position, zeros, size);
}

/* Read the member whose header is at a position. Returns PLAIN for a fully buffered regular file with nothing
   unusual, SHORT if more bytes are needed to tell, and ODD otherwise. */
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
