/* Contexts, memory and copies. A device's memory is host memory that is not touched before it is written, so cards may be larger than the
 * machine; what is charged to a card stands in the ledger. */
#include "standin.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE (2 * MIB) /* what the driver gives out at once */
#define BUCKETS 4096

typedef struct Block {
    char *begin;
    uint64_t bytes, charged;
    int device; /* -1: pinned host memory */
    struct Block *next;
} Block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Block *blocks[BUCKETS]; /* by the address at which they begin */
static _Atomic int contexts[MOST_CARDS];

__attribute__((destructor)) static void leave(void) { ledger_leave(); }

/* Take so much of a card, or nothing. Charged before it is compared, so that two processes do not both take the last of it. */
static int charge(int device, uint64_t bytes) {
    const int card = visible_cards[device];
    if (!ledger_charge(card, (int64_t)bytes)) return cudaErrorUnknown;
    if (ledger_used(card) <= bytes_of(device)) return 0;
    ledger_charge(card, -(int64_t)bytes);
    return OUT_OF_MEMORY;
}

/* --- contexts ---------------------------------------------------------------------------------------------------------- */

static uint64_t context_bytes(void) {
    const char *given = getenv("FAKE_CUDA_CONTEXT_MIB");
    return (given && *given ? (uint64_t)atoi(given) : 512) * MIB;
}

int make_context(int device) {
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
    if (contexts[device]) return 0;
    pthread_mutex_lock(&making);
    int code = contexts[device] ? 0 : fault(CALL_CONTEXT, visible_cards[device]);
    if (!code && !contexts[device]) {
        code = charge(device, context_bytes());
        contexts[device] = !code;
    }
    pthread_mutex_unlock(&making);
    return code;
}

int has_context(int device) { return contexts[device]; }

/* --- memory ------------------------------------------------------------------------------------------------------------ */

static Block **bucket_of(const void *begin) { return &blocks[((uintptr_t)begin >> 12) * 2654435761u % BUCKETS]; }

/* Any device: the current one; -1: host memory. */
static int allocate(void **to, size_t bytes, int device) {
    *to = NULL;
    if (!bytes) return 0;
    const uint64_t charged = device < 0 ? 0 : (bytes + PAGE - 1) / PAGE * PAGE;
    const int code = charged ? charge(device, charged) : 0;
    if (code) return code;
    Block *block = malloc(sizeof *block);
    void *begin = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!block || begin == MAP_FAILED) {
        if (charged) ledger_charge(visible_cards[device], -(int64_t)charged);
        free(block);
        return OUT_OF_MEMORY;
    }
    *block = (Block){begin, bytes, charged, device, NULL};
    pthread_mutex_lock(&lock);
    block->next = *bucket_of(begin);
    *bucket_of(begin) = block;
    pthread_mutex_unlock(&lock);
    *to = begin;
    return 0;
}

static int release(void *begin) {
    if (!begin) return 0;
    pthread_mutex_lock(&lock);
    Block **at = bucket_of(begin);
    while (*at && (*at)->begin != begin) at = &(*at)->next;
    Block *block = *at;
    if (block) *at = block->next;
    pthread_mutex_unlock(&lock);
    if (!block) return BAD_VALUE;
    if (block->charged) ledger_charge(visible_cards[block->device], -(int64_t)block->charged);
    munmap(block->begin, block->bytes);
    free(block);
    return 0;
}

int device_of_pointer(const void *pointer) {
    int device = -2;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < BUCKETS && device == -2; i++)
        for (const Block *block = blocks[i]; block; block = block->next)
            if ((const char *)pointer >= block->begin && (const char *)pointer < block->begin + block->bytes) device = block->device;
    pthread_mutex_unlock(&lock);
    return device;
}

API cudaError_t cudaMalloc(void **to, size_t bytes) { READY(CALL_MALLOC); RETURN(allocate(to, bytes, current_device)); }
API cudaError_t cudaMallocManaged(void **to, size_t bytes, unsigned flags) { (void)flags; return cudaMalloc(to, bytes); }
API cudaError_t cudaMallocAsync(void **to, size_t bytes, cudaStream_t stream) { (void)stream; return cudaMalloc(to, bytes); }
API cudaError_t cudaFree(void *begin) { READY(CALL_ANY); RETURN(release(begin)); }
API cudaError_t cudaFreeAsync(void *begin, cudaStream_t stream) { (void)stream; return cudaFree(begin); }
API cudaError_t cudaHostAlloc(void **to, size_t bytes, unsigned flags) { (void)flags; READY(CALL_ANY); RETURN(allocate(to, bytes, -1)); }
API cudaError_t cudaMallocHost(void **to, size_t bytes) { return cudaHostAlloc(to, bytes, 0); }
API cudaError_t cudaFreeHost(void *begin) { RETURN(release(begin)); }
API cudaError_t cudaHostRegister(void *begin, size_t bytes, unsigned flags) { (void)begin, (void)bytes, (void)flags; READY(CALL_ANY); return cudaSuccess; }
API cudaError_t cudaHostUnregister(void *begin) { (void)begin; return cudaSuccess; }
API cudaError_t cudaHostGetDevicePointer(void **to, void *host, unsigned flags) { (void)flags; *to = host; return cudaSuccess; }
API cudaError_t cudaHostGetFlags(unsigned *flags, void *host) { (void)host; *flags = 0; return cudaSuccess; }

API cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    READY(CALL_ANY);
    const uint64_t used = ledger_used(visible_cards[current_device]);
    *total = bytes_of(current_device);
    *free_bytes = used > *total ? 0 : *total - used;
    return cudaSuccess;
}

API cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *to, const void *pointer) {
    const int code = runtime_ready();
    if (code) RETURN(code);
    memset(to, 0, sizeof *to);
    const int device = device_of_pointer(pointer);
    if (device != -1) to->hostPointer = device == -2 ? (void *)pointer : NULL;
    else to->hostPointer = (void *)pointer;
    to->type = device == -2 ? cudaMemoryTypeUnregistered : device == -1 ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    to->device = device == -1 ? 0 : device;
    to->devicePointer = device == -2 ? NULL : (void *)pointer;
    return cudaSuccess;
}

/* --- copies ------------------------------------------------------------------------------------------------------------ */

static cudaError_t copy(void *to, const void *from, size_t bytes) {
    READY(CALL_COPY);
    memmove(to, from, bytes);
    return cudaSuccess;
}

API cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) { (void)kind; return copy(to, from, bytes); }

API cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void)kind, (void)stream;
    return copy(to, from, bytes);
}

API cudaError_t cudaMemcpyPeer(void *to, int device, const void *from, int other, size_t bytes) {
    (void)device, (void)other;
    return copy(to, from, bytes);
}

API cudaError_t cudaMemcpyPeerAsync(void *to, int device, const void *from, int other, size_t bytes, cudaStream_t stream) {
    (void)device, (void)other, (void)stream;
    return copy(to, from, bytes);
}

API cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                                  enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void)kind, (void)stream;
    READY(CALL_COPY);
    for (size_t row = 0; row < height; row++) memmove((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
    return cudaSuccess;
}

API cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    READY(CALL_COPY);
    memset(to, value, bytes);
    return cudaSuccess;
}

API cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    (void)stream;
    return cudaMemset(to, value, bytes);
}
