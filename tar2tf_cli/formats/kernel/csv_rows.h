/* Cells of CSV rows. Part of kernel.c, which includes it once. */

enum { MOST_CELLS = MOST_ADDED };

/* Find the end of a row, after its LF or at the end of the data; NULL if the row may continue there, in a quoted cell. */
static const char *end_of_row(const char *at, const char *end) {
    for (int quotes = 0;;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at)), *last = stop ? stop : end;
        for (const char *quote = at; (quote = memchr(quote, '"', (size_t)(last - quote))); quote++) quotes ^= 1;
        if (!quotes) return stop ? stop + 1 : end;
        if (!stop) return NULL;
        at = stop + 1;
    }
}

/* Find at most `most` cells of a row without its line break; returns their number, or -1 if Python has to do it.
   Unquotes cells in place, so the row must be writable if it contains quotes. */
static int find_cells(char *at, const char *end, char mark, Text *cells, int most) {
    const int quoted = memchr(at, '"', (size_t)(end - at)) != NULL;
    for (int count = 0; count < most; at++) {
        char *cell = at, *out, *stop;
        if (at < end && *at == '"') {
            cell = out = ++at;
            for (;; *out++ = *at++) { /* two quotes stand for one */
                if (!(stop = memchr(at, '"', (size_t)(end - at)))) return -1;
                memmove(out, at, (size_t)(stop - at));
                out += stop - at;
                at = stop + 1;
                if (at == end || *at != '"') break;
            }
        } else {
            stop = memchr(at, mark, (size_t)(end - at));
            at += stop ? stop - at : end - at;
            out = at;
            if (quoted && (memchr(cell, '"', (size_t)(at - cell)) || memchr(cell, '\n', (size_t)(at - cell)))) return -1;
            if (memchr(cell, '\r', (size_t)(at - cell))) return -1;
        }
        cells[count++] = (Text){(bytes_t)cell, out - cell};
        if (at == end) return count;
        if (*at != mark) return -1;
    }
    return -1;
}
