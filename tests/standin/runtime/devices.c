/* Which devices there are, and what they answer about themselves. */
#include "standin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

int visible_count;
int visible_cards[MOST_CARDS];
_Thread_local int current_device;

static const Model *models[MOST_CARDS];
static int card_count, init_code;
static _Atomic int init_pid;
static _Thread_local int last_error;
static _Atomic int broken[MOST_CARDS]; /* by device: the sticky error of its context */
static int peers[MOST_CARDS][MOST_CARDS];

/* --- start ------------------------------------------------------------------------------------------------------------- */

static double speed_of(int card) { return (double)models[card]->sms * models[card]->sm_max_mhz; }

/* The order in which CUDA counts: the fastest first, or by bus. A card that fell off the bus, and one with MIG, is not counted. */
static int order_cards(int *order) {
    int count = 0;
    for (int card = 0; card < card_count; card++)
        if (models[card] && !(ledger() && ledger()->lost[card])) order[count++] = card;
    const char *by = getenv("CUDA_DEVICE_ORDER");
    if (by && !strcmp(by, "PCI_BUS_ID")) return count;
    for (int i = 1; i < count; i++)
        for (int j = i; j > 0 && speed_of(order[j]) > speed_of(order[j - 1]); j--) {
            const int slower = order[j - 1];
            order[j - 1] = order[j];
            order[j] = slower;
        }
    return count;
}

static void uuid_text(int card, char to[48]) {
    unsigned char u[16];
    card_uuid(card, u);
    sprintf(to, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2], u[3], u[4], u[5], u[6],
            u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

/* The card that an entry of CUDA_VISIBLE_DEVICES means: a number in CUDA's order or the beginning of a UUID; -1: none, or several. */
static int card_named(const char *entry, const int *order, int count) {
    while (*entry == ' ') entry++;
    if (!strncmp(entry, "GPU-", 4)) {
        int found = -1, matches = 0;
        for (int i = 0; i < count; i++) {
            char text[48];
            uuid_text(order[i], text);
            if (strncasecmp(text, entry, strlen(entry))) continue;
            found = order[i];
            matches++;
        }
        return matches == 1 ? found : -1;
    }
    char *end;
    const long number = strtol(entry, &end, 10);
    return end == entry || number < 0 || number >= count ? -1 : order[number];
}

/* What comes after the first entry that means no card is not seen; a card that is named twice lets none be seen. */
static void choose_visible(const int *order, int count) {
    const char *given = getenv("CUDA_VISIBLE_DEVICES");
    if (!given) {
        memcpy(visible_cards, order, sizeof(int) * (size_t)count);
        visible_count = count;
        return;
    }
    char entries[2048], *rest;
    snprintf(entries, sizeof entries, "%s", given);
    for (char *entry = strtok_r(entries, ",", &rest); entry && visible_count < MOST_CARDS; entry = strtok_r(NULL, ",", &rest)) {
        const int card = card_named(entry, order, count);
        if (card < 0) return;
        for (int i = 0; i < visible_count; i++)
            if (visible_cards[i] == card) {
                visible_count = 0;
                return;
            }
        visible_cards[visible_count++] = card;
    }
}

static void read_environment(void) {
    const char *keys[MOST_CARDS];
    card_count = models_by_environment(keys, MOST_CARDS);
    for (int card = 0; card < card_count; card++) {
        int mig = 0;
        models[card] = model_of(keys[card], &mig);
        if (mig) models[card] = NULL;
    }
    int order[MOST_CARDS];
    choose_visible(order, order_cards(order));
    const char *fails = getenv("FAKE_CUDA_INIT");
    if (fails && *fails) init_code = atoi(fails);
    else if (!ledger()) init_code = cudaErrorUnknown;
    else init_code = visible_count ? 0 : NO_DEVICE;
}

int start(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (!init_pid) {
        read_environment();
        init_pid = getpid();
    }
    pthread_mutex_unlock(&lock);
    return init_pid == getpid() ? init_code : AFTER_FORK;
}

int started(void) { return init_pid != 0; }

int runtime_ready(void) {
    if (cuda_of_driver() < CUDART_VERSION) return cudaErrorInsufficientDriver;
    return start();
}

int device_ready(int device, CallKind kind) {
    int code = runtime_ready();
    if (code) return code;
    if (broken[device]) return broken[device];
    const int card = visible_cards[device];
    if (ledger()->lost[card]) return broken[device] = cudaErrorUnknown;
    code = make_context(device);
    if (!code) code = fault(kind, card);
    if (!is_sticky(code)) return code;
    broken[device] = code;
    /* A kernel fails after its launch has returned: whatever comes next says so. */
    return kind == CALL_LAUNCH ? 0 : code;
}

cudaError_t done(int code) {
    if (code) last_error = code;
    return (cudaError_t)code;
}

API cudaError_t cudaPeekAtLastError(void) { return (cudaError_t)(broken[current_device] ? broken[current_device] : last_error); }

API cudaError_t cudaGetLastError(void) {
    const cudaError_t code = cudaPeekAtLastError();
    last_error = 0;
    return code;
}

API const char *cudaGetErrorString(cudaError_t code) { return error_text((int)code); }
API const char *cudaGetErrorName(cudaError_t code) { return error_name((int)code); }

/* A kernel that finds something wrong, as a wrong index: the context is broken from now on. */
API int fake_cuda_break(int device, int code) { return broken[device] = code; }

/* --- what there is ----------------------------------------------------------------------------------------------------- */

const Model *model_at(int device) { return models[visible_cards[device]]; }

uint64_t bytes_of(int device) {
    const Model *model = model_at(device);
    if (model->total_mib) return (model->total_mib - model->reserved_mib) * MIB;
    return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE); /* it shares the memory of the machine */
}

static int exists(int device) { return device >= 0 && device < visible_count; }

/* For a function that asks about a device: that there is one of this number. */
#define ABOUT(device)                                  \
    do {                                               \
        const int code_ = runtime_ready();             \
        if (code_) return done(code_);                 \
        if (!exists(device)) return done(BAD_DEVICE);  \
    } while (0)

static int threads_of_sm(const Model *model) {
    if (model->major == 7 && model->minor == 5) return 1024;
    return model->minor ? 1536 : 2048;
}

static void describe(int device, struct cudaDeviceProp *to) {
    const Model *model = model_at(device);
    const int card = visible_cards[device];
    memset(to, 0, sizeof *to);
    snprintf(to->name, sizeof to->name, "%s", model->name);
    card_uuid(card, (unsigned char *)to->uuid.bytes);
    to->totalGlobalMem = bytes_of(device);
    to->sharedMemPerBlock = 48 * 1024;
    to->sharedMemPerBlockOptin = 227 * 1024;
    to->sharedMemPerMultiprocessor = 228 * 1024;
    to->regsPerBlock = to->regsPerMultiprocessor = 65536;
    to->warpSize = 32;
    to->memPitch = 2147483647;
    to->maxThreadsPerBlock = 1024;
    to->maxThreadsDim[0] = to->maxThreadsDim[1] = 1024;
    to->maxThreadsDim[2] = 64;
    to->maxGridSize[0] = 2147483647;
    to->maxGridSize[1] = to->maxGridSize[2] = 65535;
    to->totalConstMem = 65536;
    to->major = model->major;
    to->minor = model->minor;
    to->textureAlignment = 512;
    to->texturePitchAlignment = 32;
    to->multiProcessorCount = model->sms;
    to->integrated = model->total_mib == 0;
    to->canMapHostMemory = to->concurrentKernels = to->unifiedAddressing = to->managedMemory = 1;
    to->ECCEnabled = model->ecc;
    to->pciBusID = card_bus(card);
    to->asyncEngineCount = 3;
    to->memoryBusWidth = model->bus_bits;
    to->l2CacheSize = 50 << 20;
    to->maxThreadsPerMultiProcessor = threads_of_sm(model);
    to->maxBlocksPerMultiProcessor = 32;
    to->streamPrioritiesSupported = to->globalL1CacheSupported = to->localL1CacheSupported = 1;
    to->cooperativeLaunch = to->computePreemptionSupported = 1;
    to->hostRegisterSupported = to->canUseHostPointerForRegisteredMem = 1;
    to->hostNumaId = -1;
}

int attribute_of(int device, int attribute) {
    struct cudaDeviceProp about;
    describe(device, &about);
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock: return about.maxThreadsPerBlock;
        case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: return about.maxThreadsDim[0];
        case cudaDevAttrMaxBlockDimZ: return about.maxThreadsDim[2];
        case cudaDevAttrMaxGridDimX: return about.maxGridSize[0];
        case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: return about.maxGridSize[1];
        case cudaDevAttrMaxSharedMemoryPerBlock: return (int)about.sharedMemPerBlock;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: return (int)about.sharedMemPerBlockOptin;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return (int)about.sharedMemPerMultiprocessor;
        case cudaDevAttrTotalConstantMemory: return (int)about.totalConstMem;
        case cudaDevAttrWarpSize: return about.warpSize;
        case cudaDevAttrMaxPitch: return (int)about.memPitch;
        case cudaDevAttrMaxRegistersPerBlock: case cudaDevAttrMaxRegistersPerMultiprocessor: return about.regsPerBlock;
        case cudaDevAttrClockRate: return model_at(device)->sm_max_mhz * 1000;
        case cudaDevAttrMemoryClockRate: return model_at(device)->memory_mhz * 1000;
        case cudaDevAttrTextureAlignment: return (int)about.textureAlignment;
        case cudaDevAttrMultiProcessorCount: return about.multiProcessorCount;
        case cudaDevAttrIntegrated: return about.integrated;
        case cudaDevAttrConcurrentKernels: case cudaDevAttrUnifiedAddressing: case cudaDevAttrCanMapHostMemory: return 1;
        case cudaDevAttrCooperativeLaunch: case cudaDevAttrManagedMemory: return 1;
        case cudaDevAttrEccEnabled: return about.ECCEnabled;
        case cudaDevAttrPciBusId: return about.pciBusID;
        case cudaDevAttrAsyncEngineCount: return about.asyncEngineCount;
        case cudaDevAttrGlobalMemoryBusWidth: return about.memoryBusWidth;
        case cudaDevAttrL2CacheSize: return about.l2CacheSize;
        case cudaDevAttrMaxThreadsPerMultiProcessor: return about.maxThreadsPerMultiProcessor;
        case cudaDevAttrMaxBlocksPerMultiprocessor: return about.maxBlocksPerMultiProcessor;
        case cudaDevAttrComputeCapabilityMajor: return about.major;
        case cudaDevAttrComputeCapabilityMinor: return about.minor;
        default: return 0; /* PCI domain and slot, and what these cards do not have */
    }
}

API cudaError_t cudaGetDeviceCount(int *count) {
    const int code = runtime_ready();
    *count = code ? 0 : visible_count;
    RETURN(code);
}

API cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *to, int device) {
    ABOUT(device);
    describe(device, to);
    return cudaSuccess;
}

API cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    ABOUT(device);
    *value = attribute_of(device, (int)attribute);
    return cudaSuccess;
}

API cudaError_t cudaDeviceGetPCIBusId(char *to, int size, int device) {
    ABOUT(device);
    snprintf(to, (size_t)size, "0000:%02X:00.0", card_bus(visible_cards[device]));
    return cudaSuccess;
}

API cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *bus_id) {
    for (int i = 0; i < visible_count; i++) {
        char own[32];
        cudaDeviceGetPCIBusId(own, sizeof own, i);
        if (strcasecmp(own, bus_id)) continue;
        *device = i;
        return cudaSuccess;
    }
    RETURN(BAD_VALUE);
}

API cudaError_t cudaDriverGetVersion(int *version) { *version = cuda_of_driver(); return cudaSuccess; }
API cudaError_t cudaRuntimeGetVersion(int *version) { *version = CUDART_VERSION; return cudaSuccess; }

/* --- which is current -------------------------------------------------------------------------------------------------- */

API cudaError_t cudaSetDevice(int device) {
    ABOUT(device);
    current_device = device;
    READY(CALL_ANY);
    return cudaSuccess;
}

API cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
    (void)device_flags, (void)flags;
    ABOUT(device);
    RETURN(device_ready(device, CALL_ANY));
}

API cudaError_t cudaGetDevice(int *device) {
    *device = current_device;
    RETURN(runtime_ready());
}

API cudaError_t cudaDeviceSynchronize(void) { READY(CALL_SYNC); return cudaSuccess; }
API cudaError_t cudaDeviceReset(void) { return cudaSuccess; }
API cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value) { (void)limit, (void)value; return cudaSuccess; }
API cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit) { (void)limit; *value = 1 << 20; return cudaSuccess; }

/* --- two cards --------------------------------------------------------------------------------------------------------- */

/* As the fake NVML has it (nvmlDeviceGetP2PStatus): by NVLink, or by PCIe within a node where neither draws a screen. */
static int reach(int device, int other) {
    const Model *one = model_at(device), *two = model_at(other);
    const int first = visible_cards[device], second = visible_cards[other];
    if (device == other) return 0;
    if (one->switched && two->switched) return 1;
    if (one->links && two->links && first / 2 == second / 2) return 1;
    return !one->display && !two->display && card_node(first) == card_node(second);
}

API cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int other) {
    ABOUT(device);
    ABOUT(other);
    *can = reach(device, other);
    return cudaSuccess;
}

API cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attribute, int device, int other) {
    (void)attribute;
    return cudaDeviceCanAccessPeer(value, device, other);
}

API cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned flags) {
    (void)flags;
    ABOUT(other);
    READY(CALL_ANY);
    if (!reach(current_device, other)) RETURN(cudaErrorPeerAccessUnsupported);
    if (peers[current_device][other]) RETURN(cudaErrorPeerAccessAlreadyEnabled);
    peers[current_device][other] = 1;
    return cudaSuccess;
}

API cudaError_t cudaDeviceDisablePeerAccess(int other) {
    ABOUT(other);
    if (!peers[current_device][other]) RETURN(cudaErrorPeerAccessNotEnabled);
    peers[current_device][other] = 0;
    return cudaSuccess;
}
