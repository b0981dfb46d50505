/* Hashes of keys, and digests of bytes. Part of kernel.c, which includes it once. */

static uint32_t table_of_crc32[256];

/* Return the hash of a key, equal to that of formats/checksums.py. */
static uint64_t key_hash(bytes_t key, size_t size) {
    uint32_t crc = 0xFFFFFFFF;
    for (size_t at = 0; at < size; at++) crc = crc >> 8 ^ table_of_crc32[(crc ^ key[at]) & 0xFF];
    return (uint64_t)crc32c(0, key, size) << 32 | (crc ^ 0xFFFFFFFF);
}

static const uint64_t primes[] = {
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5};

static uint64_t rotated(uint64_t number, int bits) { return number << bits | number >> (64 - bits); }
static uint64_t mixed(uint64_t lane, uint64_t word) { return rotated(lane + word * primes[1], 31) * primes[0]; }

/* Return the XXH64 digest of bytes, as specified in doc/xxhash_spec.md of https://github.com/Cyan4973/xxHash. */
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
