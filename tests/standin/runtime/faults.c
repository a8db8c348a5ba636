/* Errors: their names, which of them break a context for good, and those that a test orders.
 *
 * FAKE_CUDA_FAULTS is a list of orders, divided by commas or lines, or the path of a file that has one (read again whenever it changes):
 *
 *     KIND[@CARD][:N[+]]=CODE
 *
 * The N-th call of a kind (1, if it is not said; with `+` every later one too) returns CODE, on this card as NVML counts or on all. Kinds:
 * `context` (the first call that needs a device), `malloc`, `copy`, `launch`, `sync`, `event`, `any`. `launch:5=700` is an illegal memory
 * access in the fifth kernel, `malloc:3+=2` memory that runs out half-way, `copy@1=214` an ECC error that a copy finds. */
#include "standin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* CUDA's numbers, names and texts (driver_types.h; the texts as the runtime 13.0 prints them). Sticky: the process cannot use the
 * device any more. */
static const struct {
    int code, sticky;
    const char *name, *text;
} ERRORS[] = {
    {0, 0, "cudaSuccess", "no error"},
    {1, 0, "cudaErrorInvalidValue", "invalid argument"},
    {2, 0, "cudaErrorMemoryAllocation", "out of memory"},
    {3, 0, "cudaErrorInitializationError", "initialization error"},
    {35, 0, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version"},
    {46, 0, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable"},
    {100, 0, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {101, 0, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {214, 1, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {217, 0, "cudaErrorPeerAccessUnsupported", "peer access is not supported between these two devices"},
    {220, 1, "cudaErrorNvlinkUncorrectable", "uncorrectable NVLink error detected during the execution"},
    {226, 1, "cudaErrorContained", "Invalid access of peer GPU memory over nvlink or a hardware error"},
    {400, 0, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {600, 0, "cudaErrorNotReady", "device not ready"},
    {700, 1, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {701, 0, "cudaErrorLaunchOutOfResources", "too many resources requested for launch"},
    {702, 1, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {704, 0, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {705, 0, "cudaErrorPeerAccessNotEnabled", "peer access has not been enabled"},
    {710, 1, "cudaErrorAssert", "device-side assert triggered"},
    {714, 1, "cudaErrorHardwareStackError", "hardware stack error"},
    {715, 1, "cudaErrorIllegalInstruction", "an illegal instruction was encountered"},
    {716, 1, "cudaErrorMisalignedAddress", "misaligned address"},
    {717, 1, "cudaErrorInvalidAddressSpace", "operation not supported on global/shared address space"},
    {718, 1, "cudaErrorInvalidPc", "invalid program counter"},
    {719, 1, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {721, 1, "cudaErrorTensorMemoryLeak", "tensor memory not completely freed"},
    {801, 0, "cudaErrorNotSupported", "operation not supported"},
    {802, 0, "cudaErrorSystemNotReady", "system not yet initialized"},
    {803, 0, "cudaErrorSystemDriverMismatch", "system has unsupported display driver / cuda driver combination"},
    {804, 0, "cudaErrorCompatNotSupportedOnDevice", "forward compatibility was attempted on non supported HW"},
    {999, 1, "cudaErrorUnknown", "unknown error"},
};

static size_t row_of(int code) {
    size_t row = 0;
    while (row < sizeof ERRORS / sizeof *ERRORS && ERRORS[row].code != code) row++;
    return row;
}

static int known(int code) { return row_of(code) < sizeof ERRORS / sizeof *ERRORS; }

int is_sticky(int code) { return known(code) && ERRORS[row_of(code)].sticky; }
const char *error_name(int code) { return known(code) ? ERRORS[row_of(code)].name : "unrecognized error code"; }
const char *error_text(int code) { return known(code) ? ERRORS[row_of(code)].text : "unrecognized error code"; }

/* --- on demand --------------------------------------------------------------------------------------------------------- */

typedef struct {
    int kind, card, number, onwards, code; /* card -1: any */
    int calls;
} Order;

#define MOST_ORDERS 32
static const char *const KINDS[CALL_KINDS] = {"any", "context", "malloc", "copy", "launch", "sync", "event"};
static Order orders[MOST_ORDERS];
static int order_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int kind_named(const char *name) {
    for (int kind = 0; kind < CALL_KINDS; kind++)
        if (!strcmp(name, KINDS[kind])) return kind;
    return -1;
}

static int read_order(const char *text, Order *to) {
    char kind[16];
    int used = 0;
    *to = (Order){.card = -1, .number = 1};
    if (sscanf(text, " %15[a-z]%n", kind, &used) != 1 || (to->kind = kind_named(kind)) < 0) return 0;
    text += used;
    if (sscanf(text, "@%d%n", &to->card, &used) == 1) text += used;
    if (sscanf(text, ":%d%n", &to->number, &used) == 1) text += used;
    if (*text == '+') to->onwards = 1, text++;
    return sscanf(text, "=%d", &to->code) == 1;
}

static void read_orders(char *text) {
    order_count = 0;
    char *rest;
    for (char *next = strtok_r(text, ",\n", &rest); next; next = strtok_r(NULL, ",\n", &rest)) {
        if (order_count < MOST_ORDERS && read_order(next, &orders[order_count])) order_count++;
        else fprintf(stderr, "FAKE_CUDA_FAULTS: %s is no order\n", next);
    }
}

/* The file is read again when it is another one or was written to; without it there are no orders. */
static void read_file(const char *path) {
    static struct timespec read_at;
    static ino_t read_inode;
    struct stat now;
    if (stat(path, &now)) {
        order_count = 0;
        read_inode = 0;
        return;
    }
    if (now.st_ino == read_inode && now.st_mtim.tv_sec == read_at.tv_sec && now.st_mtim.tv_nsec == read_at.tv_nsec) return;
    char text[4096];
    FILE *file = fopen(path, "re");
    if (!file) return;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    read_orders(text);
    read_at = now.st_mtim;
    read_inode = now.st_ino;
}

int fault(CallKind kind, int card) {
    static int read_once;
    const char *given = getenv("FAKE_CUDA_FAULTS");
    if (!given || !*given) return 0;
    int code = 0;
    pthread_mutex_lock(&lock);
    if (*given == '/') read_file(given);
    else if (!read_once) {
        char text[4096];
        snprintf(text, sizeof text, "%s", given);
        read_orders(text);
        read_once = 1;
    }
    for (int i = 0; i < order_count; i++) {
        Order *order = &orders[i];
        if (order->kind != CALL_ANY && order->kind != (int)kind) continue;
        if (order->card >= 0 && order->card != card) continue;
        order->calls++;
        if (order->calls == order->number || (order->onwards && order->calls > order->number)) code = order->code;
    }
    pthread_mutex_unlock(&lock);
    return code;
}
