/* Values of JSON Lines rows, equal to those of Python's `json`. Part of kernel.c, which includes it once. */

static char *after_blanks(char *at, const char *end) {
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')) at++;
    return at;
}

/* Parse four hexadecimal digits; -1 for anything else. */
static int hexadecimal(const char *at, const char *end) {
    int number = 0;
    if (end - at < 4) return -1;
    for (int digit = 0; digit < 4; digit++) {
        const char *all = "0123456789abcdef0123456789ABCDEF", *found = at[digit] ? strchr(all, at[digit]) : NULL;
        if (!found) return -1;
        number = number << 4 | (int)((found - all) & 15);
    }
    return number;
}

/* Write a character as UTF-8; returns its end. */
static char *put_utf8(char *out, int character) {
    if (character < 0x80) return *out++ = (char)character, out;
    if (character < 0x800) *out++ = (char)(0xC0 | character >> 6);
    else {
        if (character < 0x10000) *out++ = (char)(0xE0 | character >> 12);
        else {
            *out++ = (char)(0xF0 | character >> 18);
            *out++ = (char)(0x80 | (character >> 12 & 63));
        }
        *out++ = (char)(0x80 | (character >> 6 & 63));
    }
    *out++ = (char)(0x80 | (character & 63));
    return out;
}

/* Decode an escape in a string, after its backslash; returns the position after it, NULL if Python has to do it. */
static char *unescaped(char *at, const char *end, char **out) {
    const char *plain = "\"\\/bfnrt", *meant = "\"\\/\b\f\n\r\t", *found = at < end && *at ? strchr(plain, *at) : NULL;
    if (found) return *(*out)++ = meant[found - plain], at + 1;
    if (at == end || *at++ != 'u') return NULL;
    int character = hexadecimal(at, end), second;
    if (character < 0 || (character & 0xFC00) == 0xDC00) return NULL;
    at += 4;
    if ((character & 0xFC00) == 0xD800) {
        if (end - at < 6 || memcmp(at, "\\u", 2) || (second = hexadecimal(at + 2, end)) < 0 || (second & 0xFC00) != 0xDC00) return NULL;
        character = 0x10000 + ((character & 0x3FF) << 10 | (second & 0x3FF));
        at += 6;
    }
    return *out = put_utf8(*out, character), at;
}

/* Find a quoted string, and decode its escapes in place; returns the position after it, NULL if Python has to do it. */
static char *find_text(char *at, const char *end, Text *text) {
    if (at == end || *at++ != '"') return NULL;
    char *start = at, *out = at;
    for (;;) {
        char *from = at;
        while (at < end && *at != '"' && *at != '\\' && (unsigned char)*at >= ' ') at++;
        if (out < from) memmove(out, from, (size_t)(at - from));
        out += at - from;
        if (at == end || (unsigned char)*at < ' ') return NULL;
        if (*at++ == '"') break;
        if (!(at = unescaped(at, end, &out))) return NULL;
    }
    *text = (Text){(bytes_t)start, out - start};
    return at;
}

/* Return the position after one or more digits; NULL if there is none. */
static char *after_digits(char *at, const char *end) {
    const char *first = at;
    while (at < end && *at >= '0' && *at <= '9') at++;
    return at > first ? at : NULL;
}

/* Return the position after a number, or after all that can be one; NULL if there is none. */
static char *after_number(char *at, const char *end, int *is_whole) {
    at += at < end && *at == '-';
    const char *first = at;
    if (!(at = after_digits(at, end)) || (*first == '0' && at - first > 1)) return NULL;
    *is_whole = at == end || (*at != '.' && *at != 'e' && *at != 'E');
    if (at < end && *at == '.' && !(at = after_digits(at + 1, end))) return NULL;
    if (at < end && (*at == 'e' || *at == 'E')) {
        at++;
        at = after_digits(at + (at < end && (*at == '+' || *at == '-')), end);
    }
    return at;
}

/* Find a number, and set the entry to it unless only its end is wanted; returns the position after it, NULL if Python has
   to do it. */
static char *find_number(char *at, const char *end, int only_end, Entry *entry) {
    char text[41], *stop;
    int given = 1, is_whole;
    if (!(stop = after_number(at, end, &is_whole)) || stop - at >= (ptrdiff_t)sizeof text) return NULL;
    if (only_end) return stop;
    memcpy(text, at, (size_t)(stop - at));
    text[stop - at] = 0;
    if (is_whole) {
        errno = 0;
        long long number = strtoll(text, NULL, 10);
        given = !errno && give_integer(number, entry);
    } else {
        double number = PyOS_string_to_double(text, NULL, NULL);
        given = !PyErr_Occurred() && give_float(number, entry);
        PyErr_Clear();
    }
    return given ? stop : NULL;
}

/* Find a value, which is no entry if it is null; returns the position after it, NULL if Python has to do it. */
static char *find_json_value(char *at, const char *end, int only_end, Entry *entry) {
    Text text;
    if (end - at >= 4 && !memcmp(at, "null", 4)) return at + 4;
    if (at == end || *at != '"') return find_number(at, end, only_end, entry);
    if (!(at = find_text(at, end, &text))) return NULL;
    entry->data = text.data;
    entry->size = (size_t)text.size;
    return at;
}

static int has_name(const Entry *entry, const Text *name) {
    return !compare(entry->name, entry->name_size, name->data, (size_t)name->size);
}

/* Find the values of an object, which may be changed, as entries; returns their number without the key, at most
   MOST_ADDED, or -1 if Python has to do it. If only the key is wanted, numbers are no entries. */
static int find_values(char *at, char *end, const Entry *key_name, int only_key, Text *key, Entry *entries) {
    int names = 0, keys = 0, count = 0;
    at = after_blanks(at, end);
    if (at == end || *at++ != '{') return -1;
    do {
        Text name;
        if (!(at = find_text(after_blanks(at, end), end, &name))) return -1;
        at = after_blanks(at, end);
        if (at == end || *at++ != ':') return -1;
        at = after_blanks(at, end);
        if (has_name(key_name, &name)) {
            if (keys++ || !(at = find_text(at, end, key))) return -1;
        } else {
            for (int other = 0; other < names; other++)
                if (has_name(&entries[other], &name)) return -1; /* Python keeps the last value, at the position of the first */
            if (names == MOST_ADDED) return -1;
            entries[names] = (Entry){name.data, NULL, (size_t)name.size, 0, DELIMITED, {0}, 0};
            if (!(at = find_json_value(at, end, only_key, &entries[names++]))) return -1;
        }
        at = after_blanks(at, end);
        if (at == end) return -1;
    } while (*at++ == ',');
    if (at[-1] != '}' || after_blanks(at, end) != end || !keys) return -1;
    for (int entry = 0; entry < names; entry++) {
        if (!entries[entry].data) continue;
        entries[count] = entries[entry];
        if (entries[count].tag != DELIMITED) entries[count].data = entries[count].number;
        count++;
    }
    return count;
}
