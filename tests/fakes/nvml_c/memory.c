/* Memory, and who uses it. */
#define _GNU_SOURCE
#include "answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- memory and processes -------------------------------------------------------------------------------------------- */

/* With a ledger, those that it names. Without, two processes compute (this one and its parent, or FAKE_NVML_PIDS in turn), and one draws where there is a display. */
static int processes_of(const Card *card, int instance, int kind, Process *to) {
    if (card->own_processes[kind]) {
        memcpy(to, card->processes[kind], sizeof(Process) * (size_t)card->process_count[kind]);
        return card->process_count[kind];
    }
    if (ledger()) return kind || instance >= 0 ? 0 : ledger_processes(card->number, to, MOST_PROCESSES);
    unsigned pids[MOST_PROCESSES] = {(unsigned)getpid(), (unsigned)getppid()};
    int count = 2;
    const char *given = getenv("FAKE_NVML_PIDS");
    if (given && *given)
        for (count = 0; *given && count < MOST_PROCESSES; count++) {
            char *end;
            pids[count] = (unsigned)strtoul(given, &end, 10);
            given = *end ? end + 1 : end;
        }
    const uint64_t whole = total_of(card, instance);
    if (kind) {
        to[0] = (Process){pids[0], 180 * MIB};
        return card->model->display;
    }
    const int used = instance >= 0 ? 1 : count < 2 ? count : 2;
    const double share[] = {0.18 + 0.3 * busy(card), 0.04};
    for (int i = 0; i < used; i++) {
        const uint64_t pages = (uint64_t)((double)whole * share[i] / (2 * MIB));
        to[i] = (Process){pids[(card->number + i) % count], pages * 2 * MIB};
    }
    return used;
}

static uint64_t used_of(const Card *card, int instance) {
    Process list[2 * MOST_PROCESSES];
    uint64_t used = instance < 0 ? 5 * MIB : 0;
    if (instance < 0 && card->mig)
        for (int i = 0; i < card->instances; i++) used += used_of(card, i);
    else {
        int count = processes_of(card, instance, 0, list);
        count += processes_of(card, instance, 1, list + count);
        for (int i = 0; i < count; i++)
            if (list[i].bytes <= total_of(card, instance)) used += list[i].bytes;
    }
    const uint64_t most = total_of(card, instance) - (instance < 0 ? card->model->reserved_mib * MIB : 0);
    return used < most ? used : most;
}

API int nvmlDeviceGetMemoryInfo(Device device, Memory *to) {
    CARD(nvmlDeviceGetMemoryInfo);
    NEEDS(card->model->total_mib);
    const uint64_t reserved = instance < 0 ? card->model->reserved_mib * MIB : 0, total = total_of(card, instance);
    to->total = total;
    to->used = used_of(card, instance) + reserved; /* the first version counts reserved memory as used */
    to->free = total - to->used;
    return SUCCESS;
}

#ifndef OLD_DRIVER
API int nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2 *to) {
    CARD(nvmlDeviceGetMemoryInfo_v2);
    if (to->version != (sizeof(MemoryV2) | 2 << 24)) return ARGUMENT_VERSION_MISMATCH;
    NEEDS(card->model->total_mib);
    to->total = total_of(card, instance);
    to->reserved = instance < 0 ? card->model->reserved_mib * MIB : 0;
    to->used = used_of(card, instance);
    to->free = to->total - to->used - to->reserved;
    return SUCCESS;
}
#endif

static int write_processes(const Card *card, int instance, int kind, unsigned *count, ProcessInfo *to) {
    Process list[MOST_PROCESSES];
    unsigned found = 0;
    if (instance < 0 && card->mig && !card->own_processes[kind]) {
        for (int i = 0; i < card->instances; i++) found += (unsigned)processes_of(card, i, kind, list + found);
    } else
        found = (unsigned)processes_of(card, instance, kind, list);
    const unsigned room = *count;
    *count = found;
    if (found > room) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < found; i++)
        to[i] = (ProcessInfo){list[i].pid, list[i].bytes, instance < 0 ? ~0U : (unsigned)instance + 1, instance < 0 ? ~0U : 0};
    for (int i = 0; room && i < overrun(); i++) to[room + (unsigned)i] = (ProcessInfo){.pid = ~0U};
    return SUCCESS;
}

#define PROCESSES(name, kind) \
    API int name(Device device, unsigned *count, ProcessInfo *to) { CARD(name); return write_processes(card, instance, kind, count, to); }
#ifndef OLD_DRIVER
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, 0)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, 1)
API int nvmlDeviceGetMPSComputeRunningProcesses_v3(Device device, unsigned *count, ProcessInfo *to) {
    CARD(nvmlDeviceGetMPSComputeRunningProcesses_v3);
    (void)to;
    *count = 0;
    return SUCCESS;
}
#endif
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, 0)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, 1)

API int nvmlDeviceGetProcessUtilization(Device device, ProcessSample *to, unsigned *count, unsigned long long since_us) {
    WHOLE(nvmlDeviceGetProcessUtilization);
    NEEDS(!card->mig);
    Process list[MOST_PROCESSES];
    const unsigned found = (unsigned)processes_of(card, instance, 0, list);
    const unsigned long long at = (unsigned long long)unix_us() / 1000000 * 1000000; /* a sample a second */
    if (!found || at <= since_us) return NOT_FOUND;
    const unsigned room = *count;
    *count = found;
    if (!to || room < found) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < found; i++) {
        const double share = busy(card) * (i ? 10 : 80);
        to[i] = (ProcessSample){list[i].pid, at, (unsigned)share, (unsigned)(share / 2), 0, 0};
    }
    for (int i = 0; i < overrun(); i++) to[room + (unsigned)i] = (ProcessSample){.pid = ~0U};
    return SUCCESS;
}

/* --- what only torch asks, for its text about memory that ran out; no test lets these fail ----------------------------- */

typedef struct { unsigned pid; unsigned long long bytes; } ProcessInfoV1;

API int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, Device *device) {
    unsigned domain, bus;
    if (sscanf(bus_id, "%x:%x:", &domain, &bus) != 2) return INVALID_ARGUMENT;
    for (int i = 0; i < card_count; i++)
        if (cards[i].listed && bus_of(&cards[i]) == bus) {
            if (is_lost(&cards[i])) return GPU_IS_LOST;
            *device = handle_of(&cards[i], -1);
            return SUCCESS;
        }
    return NOT_FOUND;
}

API int nvmlDeviceGetComputeRunningProcesses(Device device, unsigned *count, ProcessInfoV1 *to) {
    Card *card;
    int instance;
    TRY(resolve(device, &card, &instance));
    Process list[MOST_PROCESSES];
    const unsigned room = *count, found = (unsigned)processes_of(card, instance, 0, list);
    *count = found;
    if (found > room) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < found; i++) to[i] = (ProcessInfoV1){list[i].pid, list[i].bytes};
    return SUCCESS;
}

API int nvmlDeviceGetGpuFabricInfoV(Device device, void *to) {
    (void)device, (void)to;
    return NOT_SUPPORTED;
}
