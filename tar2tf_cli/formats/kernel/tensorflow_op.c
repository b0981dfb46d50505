/* A TensorFlow op that reads batches of records from local shards, and parses the features of their examples.

   `Tar2tfRecords(first, last, seed)` returns the records at positions `first` to `last - 1` of all shards, in stored order
   or in the random order of a seed (`permuted` in records.h); with several hosts, each gets every n-th of these. Examples of the usual
   form become tensors at once, one for each feature, without a copy of the message. If a record of a batch has another
   form, the op returns all messages of the batch instead, and TensorFlow parses them, and raises its own errors.

   The functions of TensorFlow's C API are looked up in the libraries that the process has loaded, so that the build does
   not need TensorFlow, and one build serves all versions. If a function is missing, there is no op, and tf.data reads. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "records.h"

enum { STRING = 7, FAILED = 9, OUT_OF_RANGE = 11, NOT_FOUND = 5, EXHAUSTED = 8, INTERNAL = 13, DATA_LOSS = 15 };
enum { LENGTHS = 1 << 14, SPARSE = 1 << 11, AHEAD = 4 << 20, MOST_READ = 1 << 17, MOST_OPEN = 256, MOST_COLUMNS = MOST_KNOWN + 1 };
enum { MOST_KEPT = 64 << 20, BUCKETS = 1 << 12 };

/* --- TensorFlow's C API --- */

static struct {
    void *(*new_status)(void);
    void (*delete_status)(void *);
    void (*set_status)(void *, int, const char *);
    int (*get_code)(const void *);
    void *(*new_op)(const char *);
    void (*add_input)(void *, const char *);
    void (*add_output)(void *, const char *);
    void (*add_attribute)(void *, const char *);
    void (*set_shape_function)(void *, void (*)(void *, void *));
    void (*unknown_shape)(void *, void *);
    void (*register_op)(void *, void *);
    void *(*new_kernel)(const char *, const char *, void *(*)(void *), void (*)(void *, void *), void (*)(void *));
    void (*register_kernel)(const char *, void *, void *);
    void (*construction_failed)(void *, void *);
    void (*failed)(void *, void *);
    void (*attribute_size)(void *, const char *, int32_t *, int32_t *, void *);
    void (*attribute_string)(void *, const char *, char *, size_t, void *);
    void (*attribute_strings)(void *, const char *, char **, size_t *, int, void *, size_t, void *);
    void (*attribute_integers)(void *, const char *, int64_t *, int, void *);
    void (*attribute_types)(void *, const char *, int *, int, void *);
    void (*get_input)(void *, int, void **, void *);
    void *(*allocate)(void *, int, int, const int64_t *, int, size_t, void *);
    void *(*tensor_data)(const void *);
    void (*delete_tensor)(void *);
    size_t (*type_size)(int);
    void (*copy_string)(void *, const char *, size_t);
} tf;

static const char *const names[] = { /* in the order of the members */
    "TF_NewStatus", "TF_DeleteStatus", "TF_SetStatus", "TF_GetCode", "TF_NewOpDefinitionBuilder",
    "TF_OpDefinitionBuilderAddInput", "TF_OpDefinitionBuilderAddOutput", "TF_OpDefinitionBuilderAddAttr",
    "TF_OpDefinitionBuilderSetShapeInferenceFunction", "TF_ShapeInferenceContextSetUnknownShape",
    "TF_RegisterOpDefinition", "TF_NewKernelBuilder", "TF_RegisterKernelBuilder", "TF_OpKernelConstruction_Failure",
    "TF_OpKernelContext_Failure", "TF_OpKernelConstruction_GetAttrSize", "TF_OpKernelConstruction_GetAttrString",
    "TF_OpKernelConstruction_GetAttrStringList", "TF_OpKernelConstruction_GetAttrInt64List",
    "TF_OpKernelConstruction_GetAttrTypeList", "TF_GetInput", "TF_AllocateOutput", "TF_TensorData", "TF_DeleteTensor",
    "TF_DataTypeSize", "TF_StringCopy"};

/* Look up all functions; 0 if one is missing. */
static int find_functions(void) {
    void *libraries[] = {
        dlopen("libtensorflow_framework.so.2", RTLD_LAZY | RTLD_NOLOAD), dlopen("libtensorflow_cc.so.2", RTLD_LAZY | RTLD_NOLOAD)};
    for (size_t number = 0; number < sizeof names / sizeof *names; number++) {
        void *found = libraries[0] ? dlsym(libraries[0], names[number]) : NULL;
        if (!found && libraries[1]) found = dlsym(libraries[1], names[number]);
        if (!found) return 0;
        memcpy((char *)&tf + number * sizeof found, &found, sizeof found);
    }
    return 1;
}

/* --- Shards --- */

/* Positions of the records of one version of a file, which all readers in the process share: each epoch has its own reader. */
typedef struct Positions {
    struct Positions *next;
    struct stat file;
    int64_t count, known; /* numbers of its records: the total, and those with a known position */
    int64_t *offsets;     /* starts of the known records, and the end of the last one */
    int users, stale;
    pthread_mutex_t lock;
} Positions;

typedef struct {
    const char *path;
    int64_t first, count; /* numbers of its records: the first, and the total */
    Positions *positions; /* NULL until it is opened */
    int64_t advised;      /* end of the requested read-ahead */
    int file;             /* -1 while it is closed */
} Shard;

typedef struct {
    Shard *shards;
    char *paths, *description;
    int64_t *counts;
    int shard_count, columns, known_count, open;
    int64_t total, hosts, host;
    Known known[MOST_KNOWN];
    uint64_t required;
    int64_t widths[MOST_KNOWN]; /* bytes of each example; 0 for a string, and -1 for a feature without a tensor */
    int types[MOST_COLUMNS];
} Reader;

/* The error and its location. */
typedef struct {
    int code;
    char text[512];
} Fault;

static int fail(Fault *fault, int code, const Shard *shard, const char *text, int64_t record) {
    fault->code = code;
    snprintf(fault->text, sizeof fault->text, "%s: record %lld: %s", shard->path, (long long)record, text);
    return 0;
}

/* Open a shard, unless it is open; the caller closes it if it is not kept. */
static int opened(Reader *reader, Shard *shard, Fault *fault) {
    int file = __atomic_load_n(&shard->file, __ATOMIC_ACQUIRE);
    if (file >= 0) return file;
    file = open(shard->path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        fault->code = errno == ENOENT ? NOT_FOUND : FAILED;
        snprintf(fault->text, sizeof fault->text, "%s: %s", shard->path, strerror(errno));
        return -1;
    }
    if (__atomic_add_fetch(&reader->open, 1, __ATOMIC_RELAXED) > MOST_OPEN) return file;
    int closed = -1;
    if (__atomic_compare_exchange_n(&shard->file, &closed, file, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return file;
    close(file); /* another thread has opened it first */
    return closed;
}

static void done_with(Shard *shard, int file) {
    if (file >= 0 && __atomic_load_n(&shard->file, __ATOMIC_ACQUIRE) != file) close(file);
}

/* Read at most `size` bytes, fewer only at the end of the file. */
static int64_t read_at(int file, void *data, int64_t size, int64_t offset) {
    int64_t done = 0;
    while (done < size) {
        ssize_t count = pread(file, (char *)data + done, (size_t)(size - done), (off_t)(offset + done));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return count ? -1 : done;
        done += count;
    }
    return done;
}

/* --- Positions of records --- */

static pthread_mutex_t positions_lock = PTHREAD_MUTEX_INITIALIZER; /* of the table, `users` and `stale` */
static Positions *all_positions[BUCKETS];                          /* lists by inode */
static int64_t kept;                                               /* size of those that no reader uses */

static Positions **bucket_of(const Positions *one) { return &all_positions[scattered(one->file.st_ino) % BUCKETS]; }

static int64_t size_of(const Positions *one) { return (one->count + 1) * (int64_t)sizeof *one->offsets; }

static int is_same(const Positions *one, const Positions *other) {
    return !one->stale && one->count == other->count && one->file.st_ino == other->file.st_ino &&
           one->file.st_dev == other->file.st_dev && one->file.st_size == other->file.st_size &&
           one->file.st_mtim.tv_sec == other->file.st_mtim.tv_sec && one->file.st_mtim.tv_nsec == other->file.st_mtim.tv_nsec;
}

static Positions *new_positions(const Positions *like) {
    Positions *one = malloc(sizeof *one);
    int64_t *offsets = calloc((size_t)like->count + 1, sizeof *offsets);
    if (!one || !offsets) {
        free(one);
        free(offsets);
        return NULL;
    }
    *one = *like;
    one->offsets = offsets;
    pthread_mutex_init(&one->lock, NULL);
    return one;
}

/* Return the positions in an open file, to be released; NULL without memory. */
static Positions *acquire(const struct stat *file, int64_t count) {
    Positions wanted = {.file = *file, .count = count}, **bucket = bucket_of(&wanted), *one;
    pthread_mutex_lock(&positions_lock);
    for (one = *bucket; one && !is_same(one, &wanted);) one = one->next;
    if (one) kept -= one->users ? 0 : size_of(one);
    else if ((one = new_positions(&wanted))) {
        one->next = *bucket;
        *bucket = one;
    }
    if (one) one->users++;
    pthread_mutex_unlock(&positions_lock);
    return one;
}

/* Delete the positions in a list that no reader uses; all of them, or the stale ones. */
static void delete_unused(Positions **link, int all) {
    for (Positions *one; (one = *link);) {
        if (one->users || !(all || one->stale)) link = &one->next;
        else {
            *link = one->next;
            kept -= size_of(one);
            pthread_mutex_destroy(&one->lock);
            free(one->offsets);
            free(one);
        }
    }
}

/* Release positions, which are kept for another reader unless too many are. */
static void release(Positions *one) {
    pthread_mutex_lock(&positions_lock);
    if (!--one->users) {
        kept += size_of(one);
        delete_unused(bucket_of(one), 0);
        for (int bucket = 0; kept > MOST_KEPT && bucket < BUCKETS; bucket++) delete_unused(&all_positions[bucket], 1);
    }
    pthread_mutex_unlock(&positions_lock);
}

/* Have no other reader use the positions in a file that is not as it was. */
static int fail_changed(Fault *fault, const Shard *shard, const char *text, int64_t record) {
    pthread_mutex_lock(&positions_lock);
    shard->positions->stale = 1;
    pthread_mutex_unlock(&positions_lock);
    return fail(fault, DATA_LOSS, shard, text, record);
}

/* Return the positions in a shard, which the reader keeps until it is deleted; NULL after a fault. */
static Positions *positions_in(Reader *reader, Shard *shard, Fault *fault) {
    Positions *found = __atomic_load_n(&shard->positions, __ATOMIC_ACQUIRE), *none = NULL;
    struct stat status;
    if (found) return found;
    int file = opened(reader, shard, fault);
    if (file < 0) return NULL;
    int error = fstat(file, &status);
    done_with(shard, file);
    if (error) return fail(fault, FAILED, shard, strerror(errno), 0), NULL;
    found = acquire(&status, shard->count);
    if (!found) return fail(fault, EXHAUSTED, shard, "there is no memory for the places of its records", 0), NULL;
    if (__atomic_compare_exchange_n(&shard->positions, &none, found, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return found;
    release(found); /* another thread has found them first */
    return none;
}

/* Have the system read ahead in a shard that is read in order. */
static void advise(Shard *shard, int file, int64_t at) {
    if (at + AHEAD / 2 <= __atomic_load_n(&shard->advised, __ATOMIC_RELAXED)) return;
    posix_fadvise(file, (off_t)at, AHEAD, POSIX_FADV_WILLNEED);
    __atomic_store_n(&shard->advised, at + AHEAD, __ATOMIC_RELAXED);
}

/* Read lengths until the position of a record is known, and those of the next records that were read with them; but the
   last one only if it is wanted, as the end of the shard is checked with it. */
static int scan(Shard *shard, Positions *all, int file, int64_t record, int ahead, Fault *fault) {
    unsigned char lengths[LENGTHS];
    int64_t at = all->offsets[all->known], begin = at, size = 0;
    while (all->known <= record || (all->known + 1 < all->count && at + 12 <= begin + size)) {
        if (ahead) advise(shard, file, at);
        if (at + 12 > begin + size) {
            int sparse = all->known && at - all->offsets[all->known - 1] > SPARSE; /* small reads */
            size = read_at(file, lengths, sparse ? 12 : LENGTHS, begin = at);
            if (size < 0) return fail(fault, DATA_LOSS, shard, strerror(errno), all->known);
            if (!size) return fail(fault, FAILED, shard, "the shard has fewer records than the manifest says", all->known);
            if (size < 12) return fail(fault, DATA_LOSS, shard, "the shard ends inside a record", all->known);
        }
        bytes_t length = lengths + (at - begin);
        uint64_t bytes = eight(length);
        if (four_before(length + 12) != masked(crc32c(0, length, 8)) || bytes > INT64_MAX / 2)
            return all->known > record || fail(fault, DATA_LOSS, shard, "the CRC of its length is wrong", all->known);
        at += (int64_t)bytes + FRAMING;
        unsigned char next;
        if (all->known + 1 == all->count && read_at(file, &next, 1, at) == 1)
            return fail(fault, FAILED, shard, "the shard has more records than the manifest says", all->count);
        all->offsets[all->known + 1] = at;
        __atomic_store_n(&all->known, all->known + 1, __ATOMIC_RELEASE);
    }
    return 1;
}

typedef struct {
    Shard *shard;
    int64_t record, start, end;
} Span;

/* Find the position of a record, given its number among all shards' records. */
static int locate(Reader *reader, int64_t number, int ahead, Span *span, Fault *fault) {
    int low = 0, high = reader->shard_count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (reader->shards[middle].first <= number) low = middle;
        else high = middle;
    }
    Shard *shard = &reader->shards[low];
    Positions *all = positions_in(reader, shard, fault);
    if (!all) return 0;
    int64_t record = number - shard->first;
    int found = 1;
    if (__atomic_load_n(&all->known, __ATOMIC_ACQUIRE) <= record) {
        pthread_mutex_lock(&all->lock);
        int file = opened(reader, shard, fault);
        found = file >= 0 && scan(shard, all, file, record, ahead, fault);
        done_with(shard, file);
        pthread_mutex_unlock(&all->lock);
    }
    if (found) *span = (Span){shard, record, all->offsets[record], all->offsets[record + 1]};
    return found;
}

/* --- Batches --- */

typedef struct {
    Reader *reader;
    void *context, *status;
    Span *spans;
    int64_t count;
    int ahead;       /* whether records are read in order */
    int in_messages; /* messages instead of columns */
    void *outputs[MOST_COLUMNS];
    char *data[MOST_COLUMNS];
} Task;

/* Write a record's content into the tensors; 0 if its example does not have the usual form. */
static int put_record(Task *task, int64_t row, bytes_t message, bytes_t end) {
    Reader *reader = task->reader;
    if (task->in_messages) return tf.copy_string(task->data[0] + 24 * row, (const char *)message, (size_t)(end - message)), 1;
    Feature features[MOST_KNOWN];
    uint64_t found;
    if (!is_usual(message, end, reader->known, reader->known_count, &found, features)) return 0;
    if ((found & reader->required) != reader->required) return 0;
    for (int number = 0, column = 1; number < reader->known_count; number++) {
        int64_t width = reader->widths[number];
        if (width < 0) continue;
        const Feature *feature = &features[number];
        bytes_t at = feature->list, stop = feature->end;
        char *out = task->data[column++] + row * (width ? width : 24);
        if (at < stop) at = content(at, stop, DELIMITED, &stop);
        if (!width) tf.copy_string(out, (const char *)at, (size_t)(stop - at));
        else if (feature->kind != INTEGERS) memcpy(out, at, (size_t)width);
        else for (uint64_t value; at < stop; out += 8) {
            at = read_number(at, stop, &value);
            memcpy(out, &value, 8);
        }
    }
    return 1;
}

/* Read consecutive records of a shard into rows from `first` on. */
static int put_run(Task *task, int64_t first, int64_t last, char **buffer, int64_t *room, Fault *fault) {
    Span *begin = &task->spans[first], *end = &task->spans[last - 1];
    int64_t size = end->end - begin->start;
    if (size > *room) {
        free(*buffer);
        *buffer = malloc((size_t)size);
        *room = *buffer ? size : 0;
        if (!*buffer) return fail(fault, EXHAUSTED, begin->shard, "there is no memory for it", begin->record);
    }
    int file = opened(task->reader, begin->shard, fault);
    if (file < 0) return 0;
    if (task->ahead) advise(begin->shard, file, begin->start);
    int64_t found = read_at(file, *buffer, size, begin->start);
    int error = errno;
    done_with(begin->shard, file);
    if (found < 0) return fail(fault, DATA_LOSS, begin->shard, strerror(error), begin->record);
    if (found < size) return fail_changed(fault, begin->shard, "the shard ends inside a record", end->record);
    for (int64_t row = first; row < last; row++) {
        Span *span = &task->spans[row];
        bytes_t at = (bytes_t)*buffer + (span->start - begin->start), message = at + 12;
        size_t length = (size_t)(span->end - span->start - FRAMING);
        if (eight(at) != length) return fail_changed(fault, span->shard, "the shard changed while it was read", span->record);
        if (four_before(message + length + 4) != masked(crc32c(0, message, length)))
            return fail(fault, DATA_LOSS, span->shard, "the CRC of its data is wrong: tar2tf verify lists all faults", span->record);
        if (!put_record(task, row, message, message + length)) return 0;
    }
    return 1;
}

/* Allocate the tensors: messages, or columns and no messages. */
static int allocate(Task *task) {
    Reader *reader = task->reader;
    for (int number = task->in_messages ? 0 : 1; number <= (task->in_messages ? 0 : reader->columns); number++) {
        int64_t width = 0;
        for (int known = 0, column = 0; number && known < reader->known_count; known++)
            if (reader->widths[known] >= 0 && ++column == number) width = reader->widths[known];
        int type = number ? reader->types[number - 1] : STRING;
        int64_t each = width ? (int64_t)tf.type_size(type) : 24, shape[] = {task->count, width ? width / each : 1};
        task->outputs[number] =
            tf.allocate(task->context, number, type, shape, width ? 2 : 1, (size_t)(task->count * (width ? width : 24)), task->status);
        if (tf.get_code(task->status)) return 0;
        task->data[number] = tf.tensor_data(task->outputs[number]);
    }
    return 1;
}

/* Read all records of a batch; 0 without a fault if one does not have the usual form. */
static int put_all(Task *task, Fault *fault) {
    char *buffer = NULL;
    int64_t room = 0, last;
    int put = 1;
    for (int64_t first = 0; put && first < task->count; first = last) {
        Span *begin = &task->spans[first];
        for (last = first + 1; last < task->count; last++) {
            Span *next = &task->spans[last];
            if (next->shard != begin->shard || next->start != next[-1].end || next->end - begin->start > MOST_READ) break;
        }
        put = put_run(task, first, last, &buffer, &room, fault);
    }
    free(buffer);
    return put;
}

static int64_t scalar(void *context, int number, void *status) {
    void *tensor = NULL;
    int64_t value = 0;
    tf.get_input(context, number, &tensor, status);
    if (tf.get_code(status)) return 0;
    memcpy(&value, tf.tensor_data(tensor), sizeof value);
    tf.delete_tensor(tensor);
    return value;
}

static int find_spans(Task *task, int64_t first, int64_t seed, Fault *fault) {
    Reader *reader = task->reader;
    for (int64_t row = 0; row < task->count; row++) {
        int64_t number = (first + row) * reader->hosts + reader->host;
        if (number < 0 || number >= reader->total)
            return fail(fault, OUT_OF_RANGE, reader->shards, "there is no record at this position", number);
        if (seed >= 0) number = (int64_t)permuted((uint64_t)seed, (uint64_t)number, (uint64_t)reader->total);
        if (!locate(reader, number, task->ahead, &task->spans[row], fault)) return 0;
    }
    return 1;
}

static void compute(void *kernel, void *context) {
    void *status = tf.new_status();
    Fault fault = {0, ""};
    Task task = {.reader = kernel, .context = context, .status = status};
    int64_t first = scalar(context, 0, status), last = scalar(context, 1, status), seed = scalar(context, 2, status);
    task.count = last > first ? last - first : 0;
    task.ahead = seed < 0;
    task.spans = malloc((size_t)(task.count + 1) * sizeof *task.spans);
    task.in_messages = !task.reader->columns;
    if (!task.spans) fault.code = EXHAUSTED;
    int done = task.spans && find_spans(&task, first, seed, &fault) && allocate(&task) && put_all(&task, &fault);
    if (!done && !fault.code && !tf.get_code(status) && !task.in_messages) {
        task.in_messages = 1;
        done = allocate(&task) && put_all(&task, &fault);
    } else if (done && !task.in_messages) {
        int64_t none = 0;
        task.outputs[0] = tf.allocate(context, 0, STRING, &none, 1, 0, status);
    }
    for (int number = 0; number < MOST_COLUMNS; number++)
        if (task.outputs[number]) tf.delete_tensor(task.outputs[number]);
    free(task.spans);
    if (fault.code) tf.set_status(status, fault.code, fault.text);
    if (tf.get_code(status)) tf.failed(context, status);
    tf.delete_status(status);
}

/* --- The op --- */

static void delete_reader(void *kernel) {
    Reader *reader = kernel;
    if (!reader) return;
    for (int number = 0; reader->shards && number < reader->shard_count; number++) {
        Shard *shard = &reader->shards[number];
        if (shard->file >= 0) close(shard->file);
        if (shard->positions) release(shard->positions);
    }
    free(reader->shards);
    free(reader->paths);
    free(reader->counts);
    free(reader->description);
    free(reader);
}

/* Parse the paths of the shards, and the number of records in each. */
static void read_shards(void *construction, Reader *reader, void *status) {
    int32_t count = 0, size = 0;
    tf.attribute_size(construction, "paths", &count, &size, status);
    char **paths = calloc((size_t)count + 1, sizeof *paths), *storage = malloc((size_t)size + 1);
    size_t *lengths = calloc((size_t)count + 1, sizeof *lengths);
    reader->paths = malloc((size_t)size + (size_t)count + 1);
    reader->counts = calloc((size_t)count + 1, sizeof *reader->counts);
    reader->shards = calloc((size_t)count + 1, sizeof *reader->shards);
    if (paths && storage && lengths && reader->paths && reader->counts && reader->shards) {
        tf.attribute_strings(construction, "paths", paths, lengths, count, storage, (size_t)size, status);
        if (!tf.get_code(status)) tf.attribute_integers(construction, "counts", reader->counts, count, status);
        char *out = reader->paths;
        for (int32_t number = 0; !tf.get_code(status) && number < count; number++) {
            reader->shards[number] = (Shard){.path = out, .first = reader->total, .count = reader->counts[number], .file = -1};
            memcpy(out, paths[number], lengths[number]);
            out += lengths[number];
            *out++ = 0;
            reader->total += reader->counts[number];
            reader->shard_count = number + 1;
        }
    } else tf.set_status(status, EXHAUSTED, "there is no memory for the list of shards");
    free(paths);
    free(storage);
    free(lengths);
}

/* Parse the known features, and the form of each. */
static void read_features(void *construction, Reader *reader, void *status) {
    int32_t count = 0, size = 0;
    tf.attribute_size(construction, "features", &count, &size, status);
    reader->description = malloc((size_t)size + 1);
    if (!reader->description) return tf.set_status(status, EXHAUSTED, "there is no memory for the features");
    tf.attribute_string(construction, "features", reader->description, (size_t)size, status);
    if (tf.get_code(status)) return;
    reader->known_count = read_known((bytes_t)reader->description, size, reader->known);
    if (reader->known_count < 0) return tf.set_status(status, INTERNAL, "no such features");
    int64_t part[2];
    tf.attribute_integers(construction, "widths", reader->widths, reader->known_count, status);
    if (!tf.get_code(status)) tf.attribute_integers(construction, "part", part, 2, status);
    if (!tf.get_code(status)) tf.attribute_size(construction, "Tout", &count, &size, status);
    if (tf.get_code(status) || count > MOST_KNOWN) return;
    if ((reader->columns = count)) tf.attribute_types(construction, "Tout", reader->types, count, status);
    reader->hosts = part[0];
    reader->host = part[1];
    reader->required = reader->known_count == 64 ? UINT64_MAX : ((uint64_t)1 << reader->known_count) - 1;
}

static void *make_reader(void *construction) {
    void *status = tf.new_status();
    Reader *reader = calloc(1, sizeof *reader);
    if (!reader) tf.set_status(status, EXHAUSTED, "there is no memory for a reader");
    else read_shards(construction, reader, status);
    if (!tf.get_code(status)) read_features(construction, reader, status);
    if (tf.get_code(status)) tf.construction_failed(construction, status);
    tf.delete_status(status);
    return reader;
}

static const char *const attributes[] = {
    "Tout: list(type) >= 0", "paths: list(string)", "counts: list(int)", "features: string", "widths: list(int) >= 0",
    "part: list(int)"};

__attribute__((constructor)) static void begin(void) {
    begin_crc();
    if (!find_functions()) return;
    void *status = tf.new_status(), *op = tf.new_op("Tar2tfRecords");
    const char *inputs[] = {"first: int64", "last: int64", "seed: int64"};
    for (int number = 0; number < 3; number++) tf.add_input(op, inputs[number]);
    tf.add_output(op, "messages: string");
    tf.add_output(op, "columns: Tout");
    for (size_t number = 0; number < sizeof attributes / sizeof *attributes; number++) tf.add_attribute(op, attributes[number]);
    tf.set_shape_function(op, tf.unknown_shape);
    tf.register_op(op, status);
    if (!tf.get_code(status)) {
        void *kernel = tf.new_kernel("Tar2tfRecords", "CPU", make_reader, compute, delete_reader);
        tf.register_kernel("Tar2tfRecords", kernel, status);
    }
    tf.delete_status(status);
}
