/* Kernels. Those of torch's operators are computed on the CPU before they get here (operators/). One that does get here is refused, so
 * that no result is wrong without a word. */
#include "standin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the log ----------------------------------------------------------------------------------------------------------- */

void say(const char *what, const char *name) {
    enum { MOST = 500, LENGTH = 200 };
    static char said[MOST][LENGTH];
    static int count;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const char *path = getenv("FAKE_CUDA_LOG");
    if (!path || !*path) return;
    pthread_mutex_lock(&lock);
    int at = 0;
    while (at < count && strncmp(said[at], name, LENGTH - 1)) at++;
    FILE *file = at == count && count < MOST ? fopen(path, "ae") : NULL;
    if (file) {
        strncpy(said[count++], name, LENGTH - 1);
        fprintf(file, "%d %s: %s\n", getpid(), what, name);
        fclose(file);
    }
    pthread_mutex_unlock(&lock);
}

/* A function of the runtime that nobody has written: what make.py generates for it calls this. */
API int fake_cuda_missing(const char *name) {
    say("not implemented", name);
    return NOT_IMPLEMENTED;
}

/* --- their names ------------------------------------------------------------------------------------------------------- */

typedef struct Kernel {
    const void *host;
    const char *name;
    struct Kernel *next;
} Kernel;

#define BUCKETS 8192
static Kernel *kernels[BUCKETS];

static Kernel **bucket_of(const void *host) { return &kernels[((uintptr_t)host >> 4) % BUCKETS]; }

static const char *name_of(const void *host) {
    for (const Kernel *kernel = *bucket_of(host); kernel; kernel = kernel->next)
        if (kernel->host == host) return kernel->name;
    return "a kernel that was not registered";
}

/* What nvcc lets every library of kernels call when it is loaded, one thread at a time. */
void **__cudaRegisterFatBinary(void *binary);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, uint3 *thread, uint3 *block,
                            dim3 *block_size, dim3 *grid_size, int *warp_size);
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t bytes, int constant, int global);
void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int external, size_t bytes, int constant,
                              int global);
char __cudaInitModule(void **handle);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream);

API void **__cudaRegisterFatBinary(void *binary) { (void)binary; return calloc(1, 16); }
API void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
API void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
API char __cudaInitModule(void **handle) { (void)handle; return 1; }

API void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int limit, uint3 *thread, uint3 *block,
                                dim3 *block_size, dim3 *grid_size, int *warp_size) {
    (void)handle, (void)device, (void)limit, (void)thread, (void)block, (void)block_size, (void)grid_size, (void)warp_size;
    Kernel *kernel = malloc(sizeof *kernel);
    if (!kernel) return;
    *kernel = (Kernel){host, name, *bucket_of(host)};
    *bucket_of(host) = kernel;
}

API void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int external, size_t bytes, int constant,
                           int global) {
    (void)handle, (void)host, (void)device, (void)name, (void)external, (void)bytes, (void)constant, (void)global;
}

API void __cudaRegisterManagedVar(void **handle, void **host, char *device, const char *name, int external, size_t bytes, int constant,
                                  int global) {
    (void)handle, (void)host, (void)device, (void)name, (void)external, (void)bytes, (void)constant, (void)global;
}

/* --- launches ---------------------------------------------------------------------------------------------------------- */

/* `<<<…>>>` pushes the configuration, the kernel's own function pops it and launches. */
typedef struct {
    dim3 grid, block;
    size_t shared;
    void *stream;
} Configuration;

static _Thread_local Configuration pushed[16];
static _Thread_local int depth;

API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
    if (depth == 16) return BAD_VALUE;
    pushed[depth++] = (Configuration){grid, block, shared, stream};
    return 0;
}

API cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    if (!depth) return cudaErrorMissingConfiguration;
    const Configuration last = pushed[--depth];
    *grid = last.grid;
    *block = last.block;
    *shared = last.shared;
    *(void **)stream = last.stream;
    return cudaSuccess;
}

/* torch.cuda._sleep only lets time pass. */
static int computes_nothing(const char *name) { return strstr(name, "spin_kernel") != NULL; }

static cudaError_t launch(const void *host) {
    READY(CALL_LAUNCH);
    const char *name = name_of(host);
    if (computes_nothing(name)) return cudaSuccess;
    say("kernel not computed", name);
    RETURN(NOT_IMPLEMENTED);
}

API cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) {
    (void)grid, (void)block, (void)arguments, (void)shared, (void)stream;
    return launch(host);
}

API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *configuration, const void *host, void **arguments) {
    (void)configuration, (void)arguments;
    return launch(host);
}

API cudaError_t cudaLaunchCooperativeKernel(const void *host, dim3 grid, dim3 block, void **arguments, size_t shared,
                                            cudaStream_t stream) {
    return cudaLaunchKernel(host, grid, block, arguments, shared, stream);
}

API cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host) { *kernel = (cudaKernel_t)host; return cudaSuccess; }

API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t stream) {
    return cudaLaunchKernel((const void *)kernel, grid, block, arguments, shared, stream);
}

/* An operator that the CPU is about to compute in a device's place counts as a launch. */
API int fake_cuda_launch(int device) { return done(device_ready(device, CALL_LAUNCH)); }

API cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *to, const void *host) {
    (void)host;
    memset(to, 0, sizeof *to);
    to->maxThreadsPerBlock = 1024;
    to->numRegs = 32;
    to->binaryVersion = to->ptxVersion = 90;
    to->maxDynamicSharedSizeBytes = 227 * 1024;
    return cudaSuccess;
}

API cudaError_t cudaFuncSetAttribute(const void *host, enum cudaFuncAttribute attribute, int value) {
    (void)host, (void)attribute, (void)value;
    return cudaSuccess;
}

API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *host, int threads, size_t shared,
                                                                       unsigned flags) {
    (void)host, (void)threads, (void)shared, (void)flags;
    *blocks = 2;
    return cudaSuccess;
}

API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *host, int threads, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, threads, shared, 0);
}

API cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
API cudaError_t cudaProfilerStop(void) { return cudaSuccess; }
