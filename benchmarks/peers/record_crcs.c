/* The limit of verifying: both CRCs of each record, and nothing else. record_crcs TFRECORD... */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "records.h"

static long check(const char *path) {
    struct stat stat;
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &stat)) perror(path), exit(1);
    bytes_t data = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0), at = data;
    if (data == MAP_FAILED) perror(path), exit(1);
    long records = 0;
    for (bytes_t end = data + stat.st_size; at < end; records++) {
        uint64_t length = eight(at);
        if (four_before(at + 12) != masked(crc32c(0, at, 8))) fputs("the CRC of a length is wrong\n", stderr), exit(1);
        if (four_before(at + length + FRAMING) != masked(crc32c(0, at + 12, length)))
            fputs("the CRC of a record is wrong\n", stderr), exit(1);
        at += length + FRAMING;
    }
    munmap((void *)data, (size_t)stat.st_size);
    close(file);
    return records;
}

int main(int count, char **arguments) {
    long records = 0;
    begin_crc();
    for (int number = 1; number < count; number++) records += check(arguments[number]);
    printf("{\"records\": %ld}\n", records);
    return 0;
}
