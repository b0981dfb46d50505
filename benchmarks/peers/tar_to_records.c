/* The limit of a conversion: walk the headers of tars, and write each sample as a framed Example with its CRCs.

   tar_to_records OUT TAR...: for USTAR without long names, whose samples are adjacent; one shard per tar, synced. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "records.h"

enum { BLOCK = 512, MOST_ENTRIES = 16, FLUSH = 1 << 20, ROOM = 64 << 20 };

typedef struct {
    const char *name;
    size_t name_size, size, list, feature; /* bytes of the name, the value, its BytesList and its entry of the map */
    bytes_t data;
} Entry;

static unsigned char *out;
static size_t used;

static size_t varint_size(size_t number) {
    size_t size = 1;
    for (; number >= 0x80; number >>= 7) size++;
    return size;
}

static size_t field_size(size_t content) { return 1 + varint_size(content) + content; }

static void put_field(int tag, size_t size) {
    out[used++] = (unsigned char)tag;
    for (; size >= 0x80; size >>= 7) out[used++] = (unsigned char)(size | 0x80);
    out[used++] = (unsigned char)size;
}

static void put(const void *data, size_t size) {
    memcpy(out + used, data, size);
    used += size;
}

static void flush(int file) {
    for (size_t done = 0; done < used;) {
        ssize_t count = write(file, out + done, used - done);
        if (count < 0) perror("write"), exit(1);
        done += (size_t)count;
    }
    used = 0;
}

static void put_sample(Entry *entries, int count, int file) {
    size_t features = 0;
    for (int number = 0; number < count; number++) {
        Entry *entry = &entries[number];
        entry->list = field_size(entry->size);
        entry->feature = field_size(entry->name_size) + field_size(field_size(entry->list));
        features += field_size(entry->feature);
    }
    uint64_t length = field_size(features);
    if (used + length + FRAMING > FLUSH) flush(file);
    if (length + FRAMING > ROOM) fputs("a sample is too large\n", stderr), exit(1);
    uint32_t crc = masked(crc32c(0, (bytes_t)&length, 8));
    put(&length, 8);
    put(&crc, 4);
    bytes_t message = out + used;
    put_field(DELIMITED, features);
    for (int number = 0; number < count; number++) {
        Entry *entry = &entries[number];
        put_field(DELIMITED, entry->feature);
        put_field(DELIMITED, entry->name_size);
        put(entry->name, entry->name_size);
        put_field(VALUE, field_size(entry->list));
        put_field(DELIMITED, entry->list);
        put_field(DELIMITED, entry->size);
        put(entry->data, entry->size);
    }
    crc = masked(crc32c(0, message, length));
    put(&crc, 4);
}

static long convert(const char *path, const char *folder) {
    char target[4096];
    struct stat stat;
    int source = open(path, O_RDONLY);
    if (source < 0 || fstat(source, &stat)) perror(path), exit(1);
    const char *tar = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, source, 0), *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    snprintf(target, sizeof target, "%s/%.*s.record", folder, (int)strcspn(base, "."), base);
    int file = open(target, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (tar == MAP_FAILED || file < 0) perror(target), exit(1);
    Entry entries[MOST_ENTRIES];
    long records = 0;
    int count = 0;
    for (const char *at = tar, *end = tar + stat.st_size; at + BLOCK <= end && *at;) {
        size_t size = strtoull(at + 124, NULL, 8), key_size = strcspn(at, ".");
        if (count && (entries[0].size != key_size || memcmp(entries[0].data, at, key_size))) {
            put_sample(entries, count, file);
            records++;
            count = 0;
        }
        if (!count) entries[count++] = (Entry){.name = "__key__", .name_size = 7, .size = key_size, .data = (bytes_t)at};
        if (count == MOST_ENTRIES) fputs("a sample has too many entries\n", stderr), exit(1);
        const char *name = at + key_size + 1;
        entries[count++] = (Entry){.name = name, .name_size = strlen(name), .size = size, .data = (bytes_t)at + BLOCK};
        at += BLOCK + (size + BLOCK - 1) / BLOCK * BLOCK;
    }
    if (count) put_sample(entries, count, file), records++;
    flush(file);
    if (fsync(file)) perror(target), exit(1);
    close(file);
    munmap((void *)tar, (size_t)stat.st_size);
    close(source);
    return records;
}

int main(int count, char **arguments) {
    long records = 0;
    begin_crc();
    out = malloc(FLUSH + ROOM);
    for (int number = 2; out && number < count; number++) records += convert(arguments[number], arguments[1]);
    printf("{\"records\": %ld}\n", records);
    return !out;
}
