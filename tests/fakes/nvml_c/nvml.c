/* NVML's interface over the cards of control.c: names, structures, versions and return codes are those of NVIDIA's nvml.h. Any thread.
 * Built with -DOLD_DRIVER it lacks what drivers before about 2021 lack. */
#define _GNU_SOURCE
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef const Handle *Device;
typedef struct { char legacy[16]; unsigned domain, bus, device, pci_device_id, subsystem_id; char bus_id[32]; } PciInfo;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned version, sensor; int celsius; } TemperatureV1;
typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; } ProcessInfo;
typedef struct { unsigned pid; unsigned long long time_us; unsigned sm, memory, encoder, decoder; } ProcessSample;
typedef union { double d; unsigned u; unsigned long ul; unsigned long long ull; long long sll; int i; unsigned short us; } Value;
typedef struct { unsigned field, scope; long long time_us, latency_us; int type, code; Value value; } FieldValue;
typedef struct { unsigned sms, copy, decoders, encoders, jpeg, ofa, gpu_slices, compute_slices; unsigned long long memory_mb; } Attributes;

_Static_assert(sizeof(PciInfo) == 68 && sizeof(Memory) == 24 && sizeof(MemoryV2) == 40, "layout of nvml.h");
_Static_assert(sizeof(ProcessInfo) == 24 && sizeof(ProcessSample) == 32 && sizeof(FieldValue) == 40, "layout of nvml.h");
_Static_assert(sizeof(Attributes) == 40 && sizeof(TemperatureV1) == 12, "layout of nvml.h");

#define TRY(call) do { const int code_ = (call); if (code_) return code_; } while (0)
#define ENTER(name) TRY(enter(F_##name, -1))
/* `card` and `instance` of a handle. */
#define CARD(name) Card *card; int instance; TRY(enter_device(F_##name, device, &card, &instance))
/* What MIG instances do not answer for themselves. */
#define WHOLE(name) CARD(name); if (instance >= 0) return NOT_SUPPORTED
#define NEEDS(what) if (!(what)) return NOT_SUPPORTED

static int text(char *to, unsigned size, const char *from) {
    if (strlen(from) >= size) return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return SUCCESS;
}

static long long unix_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

/* --- NVML itself ----------------------------------------------------------------------------------------------------- */

API int nvmlInit_v2(void) { ENTER(nvmlInit_v2); return session_start(); }
API int nvmlInitWithFlags(unsigned flags) { (void)flags; ENTER(nvmlInitWithFlags); return session_start(); }
API int nvmlShutdown(void) { ENTER(nvmlShutdown); return session_end(); }

API const char *nvmlErrorString(int code) {
    static const struct { int code; const char *words; } WORDS[] = {
        {0, "Success"}, {1, "Uninitialized"}, {2, "Invalid Argument"}, {3, "Not Supported"}, {4, "Insufficient Permissions"},
        {6, "Not Found"}, {9, "Driver Not Loaded"}, {10, "Timeout"}, {15, "GPU is lost"}, {25, "Argument Version Mismatch"}};
    for (size_t i = 0; i < sizeof WORDS / sizeof *WORDS; i++)
        if (WORDS[i].code == code) return WORDS[i].words;
    return "Unknown Error";
}

API int nvmlSystemGetDriverVersion(char *to, unsigned size) { ENTER(nvmlSystemGetDriverVersion); return text(to, size, "570.172.08"); }
API int nvmlSystemGetNVMLVersion(char *to, unsigned size) { ENTER(nvmlSystemGetNVMLVersion); return text(to, size, "12.570.172.08"); }
API int nvmlSystemGetCudaDriverVersion(int *version) { ENTER(nvmlSystemGetCudaDriverVersion); *version = 12080; return SUCCESS; }
API int nvmlSystemGetCudaDriverVersion_v2(int *version) { ENTER(nvmlSystemGetCudaDriverVersion_v2); *version = 12080; return SUCCESS; }

API int nvmlSystemGetProcessName(unsigned pid, char *to, unsigned size) {
    ENTER(nvmlSystemGetProcessName);
    char path[64], name[256] = "";
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    FILE *file = fopen(path, "r");
    if (!file) return NOT_FOUND;
    if (fgets(name, sizeof name, file)) name[strcspn(name, "\n")] = 0;
    fclose(file);
    return text(to, size, name);
}

/* --- what a card is -------------------------------------------------------------------------------------------------- */

API int nvmlDeviceGetCount_v2(unsigned *count) { ENTER(nvmlDeviceGetCount_v2); *count = (unsigned)listed_count(); return SUCCESS; }

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    const Card *card = listed_card(index);
    TRY(enter(F_nvmlDeviceGetHandleByIndex_v2, card ? card->number : -1));
    if (!card) return INVALID_ARGUMENT;
    if (card->lost) return GPU_IS_LOST;
    *device = handle_of(card, -1);
    return SUCCESS;
}

static void write_uuid(const Card *card, int instance, char *to) {
    if (instance < 0) sprintf(to, "GPU-fa4e0000-c0de-4000-8000-%012x", card->number + 1);
    else sprintf(to, "MIG-fa4e0000-c0de-5000-8000-%06x%04x%02x", card->number + 1, card->mig_generation, instance);
}

API int nvmlDeviceGetHandleByUUID(const char *uuid, Device *device) {
    ENTER(nvmlDeviceGetHandleByUUID);
    for (int i = 0; i < card_count; i++)
        for (int instance = -1; cards[i].listed && instance < cards[i].instances; instance++) {
            char own[96];
            write_uuid(&cards[i], instance, own);
            if (strcmp(own, uuid)) continue;
            if (cards[i].lost) return GPU_IS_LOST;
            *device = handle_of(&cards[i], instance);
            return SUCCESS;
        }
    return NOT_FOUND;
}

API int nvmlDeviceGetUUID(Device device, char *to, unsigned size) {
    CARD(nvmlDeviceGetUUID);
    char own[96];
    write_uuid(card, instance, own);
    return text(to, size, own);
}

API int nvmlDeviceGetName(Device device, char *to, unsigned size) {
    CARD(nvmlDeviceGetName);
    char name[128];
    snprintf(name, sizeof name, instance < 0 ? "%s" : "%s MIG 3g.71gb", card->name);
    return text(to, size, name);
}

static unsigned bus_of(const Card *card) { return 0x1bU + 0x0cU * (unsigned)card->number; }

static void write_pci(PciInfo *info, unsigned bus, unsigned id) {
    *info = (PciInfo){.bus = bus & 0xff, .pci_device_id = id, .subsystem_id = 0x18be10de};
    snprintf(info->legacy, sizeof info->legacy, "0000:%02X:00.0", bus & 0xff);
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", bus & 0xff);
}

API int nvmlDeviceGetPciInfo_v3(Device device, PciInfo *info) {
    CARD(nvmlDeviceGetPciInfo_v3);
    write_pci(info, bus_of(card), 0x233510deU);
    return SUCCESS;
}

API int nvmlDeviceGetSerial(Device device, char *to, unsigned size) {
    WHOLE(nvmlDeviceGetSerial);
    NEEDS(card->model->serial);
    char serial[30];
    snprintf(serial, sizeof serial, "16542230%05d", card->number + 1);
    return text(to, size, serial);
}

API int nvmlDeviceGetBoardPartNumber(Device device, char *to, unsigned size) {
    WHOLE(nvmlDeviceGetBoardPartNumber);
    NEEDS(card->model->part_number);
    return text(to, size, card->model->part_number);
}

API int nvmlDeviceGetVbiosVersion(Device device, char *to, unsigned size) {
    WHOLE(nvmlDeviceGetVbiosVersion);
    return text(to, size, card->model->vbios);
}

/* A number that the model states, or another expression of `card`. */
#define NUMBER(name, type, condition, expression)       \
    API int name(Device device, type *to) {             \
        WHOLE(name);                                    \
        NEEDS(condition);                               \
        *to = (type)(expression);                       \
        return SUCCESS;                                 \
    }

NUMBER(nvmlDeviceGetBrand, unsigned, 1, card->model->brand)
NUMBER(nvmlDeviceGetArchitecture, unsigned, 1, card->model->architecture)
NUMBER(nvmlDeviceGetMinorNumber, unsigned, 1, card->number)
NUMBER(nvmlDeviceGetIndex, unsigned, 1, index_of(card))
NUMBER(nvmlDeviceGetPersistenceMode, unsigned, 1, 1)
NUMBER(nvmlDeviceGetComputeMode, unsigned, 1, 0)
NUMBER(nvmlDeviceGetAccountingMode, unsigned, 1, 0)
NUMBER(nvmlDeviceGetDisplayActive, unsigned, 1, card->model->display)
NUMBER(nvmlDeviceGetDisplayMode, unsigned, 1, card->model->display)
NUMBER(nvmlDeviceGetMemoryBusWidth, unsigned, 1, card->model->bus_bits)
#ifndef OLD_DRIVER
NUMBER(nvmlDeviceGetNumGpuCores, unsigned, 1, card->model->cores)
#endif

API int nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor) {
    CARD(nvmlDeviceGetCudaComputeCapability);
    *major = card->model->major;
    *minor = card->model->minor;
    return SUCCESS;
}

static uint64_t total_of(const Card *card, int instance) {
    return card->model->total_mib * MIB / (instance < 0 ? 1 : (uint64_t)card->instances);
}

/* For a card without MIG NVML answers too: the SMs of the whole card. */
API int nvmlDeviceGetAttributes_v2(Device device, Attributes *to) {
    CARD(nvmlDeviceGetAttributes_v2);
    const unsigned parts = instance < 0 ? 1 : (unsigned)card->instances;
    *to = (Attributes){.sms = (unsigned)card->model->sms / parts, .copy = 3, .decoders = 7 / parts, .encoders = 0, .jpeg = 1, .ofa = 1,
                       .gpu_slices = instance < 0 ? 0 : 3, .compute_slices = instance < 0 ? 0 : 3,
                       .memory_mb = total_of(card, instance) / MIB};
    return SUCCESS;
}

/* --- memory and processes -------------------------------------------------------------------------------------------- */

/* By default two processes compute (this one and its parent, or FAKE_NVML_PIDS in turn), and one draws where there is a display. */
static int processes_of(const Card *card, int instance, int kind, Process *to) {
    if (card->own_processes[kind]) {
        memcpy(to, card->processes[kind], sizeof(Process) * (size_t)card->process_count[kind]);
        return card->process_count[kind];
    }
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
    return SUCCESS;
}

/* --- how it is doing ------------------------------------------------------------------------------------------------- */

API int nvmlDeviceGetUtilizationRates(Device device, Utilization *to) {
    WHOLE(nvmlDeviceGetUtilizationRates);
    NEEDS(!card->mig);
    to->gpu = (unsigned)(100 * busy(card));
    to->memory = (unsigned)(45 * busy(card));
    return SUCCESS;
}

static int celsius(const Card *card) { return 34 + (int)(44 * busy(card)); }

API int nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned *to) {
    WHOLE(nvmlDeviceGetTemperature);
    if (sensor != 0) return INVALID_ARGUMENT;
    *to = (unsigned)celsius(card);
    return SUCCESS;
}

#ifndef OLD_DRIVER
API int nvmlDeviceGetTemperatureV(Device device, TemperatureV1 *to) {
    WHOLE(nvmlDeviceGetTemperatureV);
    if (to->version != (sizeof(TemperatureV1) | 1 << 24)) return ARGUMENT_VERSION_MISMATCH;
    if (to->sensor != 0) return INVALID_ARGUMENT;
    to->celsius = celsius(card);
    return SUCCESS;
}
#endif

/* A card draws its idle power and 0.9 of the rest of its cap when it is fully busy. */
static double watts(const Card *card) { return card->model->idle_w + 0.9 * (card->model->cap_w - card->model->idle_w) * busy(card); }

static double joules(const Card *card) {
    return card->model->idle_w * now_s() + 0.9 * (card->model->cap_w - card->model->idle_w) * busy_integral(card);
}

NUMBER(nvmlDeviceGetPowerUsage, unsigned, 1, watts(card) * 1000)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, 1, card->model->cap_w * 1000)
NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned, 1, card->model->cap_w * 1000)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, 1, card->model->cap_w * 1000)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, 1, joules(card) * 1000)
NUMBER(nvmlDeviceGetPerformanceState, unsigned, 1, busy(card) > 0.25 ? 0 : 8)

API int nvmlDeviceGetPowerManagementLimitConstraints(Device device, unsigned *least, unsigned *most) {
    WHOLE(nvmlDeviceGetPowerManagementLimitConstraints);
    *least = (unsigned)card->model->least_w * 1000;
    *most = (unsigned)card->model->cap_w * 1000;
    return SUCCESS;
}

/* type 0: graphics, 1: SM, 2: memory, 3: video */
static int clock_mhz(const Card *card, unsigned type, double share, unsigned *to) {
    const Model *model = card->model;
    const double sm = model->sm_idle_mhz + (model->sm_max_mhz - model->sm_idle_mhz) * share;
    if (type > 3) return INVALID_ARGUMENT;
    *to = (unsigned)(type == 2 ? model->memory_mhz : type == 3 ? model->video_max_mhz * (0.5 + 0.5 * share) : sm);
    return SUCCESS;
}

API int nvmlDeviceGetClockInfo(Device device, unsigned type, unsigned *to) {
    WHOLE(nvmlDeviceGetClockInfo);
    return clock_mhz(card, type, busy(card), to);
}

API int nvmlDeviceGetMaxClockInfo(Device device, unsigned type, unsigned *to) {
    WHOLE(nvmlDeviceGetMaxClockInfo);
    return clock_mhz(card, type, 1, to);
}

API int nvmlDeviceGetApplicationsClock(Device device, unsigned type, unsigned *to) {
    WHOLE(nvmlDeviceGetApplicationsClock);
    NEEDS(card->model->serial && (type == 0 || type == 2)); /* datacentre cards */
    return clock_mhz(card, type, 1, to);
}

API int nvmlDeviceGetEncoderUtilization(Device device, unsigned *percent, unsigned *period_us) {
    WHOLE(nvmlDeviceGetEncoderUtilization);
    NEEDS(!card->mig);
    *percent = card->model->display ? (unsigned)(20 * busy(card)) : 0;
    *period_us = 167000;
    return SUCCESS;
}

API int nvmlDeviceGetDecoderUtilization(Device device, unsigned *percent, unsigned *period_us) {
    WHOLE(nvmlDeviceGetDecoderUtilization);
    NEEDS(!card->mig);
    *percent = (unsigned)(12 * busy(card));
    *period_us = 167000;
    return SUCCESS;
}

NUMBER(nvmlDeviceGetFanSpeed, unsigned, card->model->fans, 30 + 60 * busy(card))
#ifndef OLD_DRIVER
NUMBER(nvmlDeviceGetNumFans, unsigned, card->model->fans, card->model->fans)
API int nvmlDeviceGetFanSpeed_v2(Device device, unsigned fan, unsigned *to) {
    WHOLE(nvmlDeviceGetFanSpeed_v2);
    NEEDS(card->model->fans);
    if (fan >= (unsigned)card->model->fans) return INVALID_ARGUMENT;
    *to = (unsigned)(30 + 60 * busy(card)) + fan;
    return SUCCESS;
}
#endif

static uint64_t reasons(const Card *card) {
    return busy(card) < 0.2 ? 1 : busy(card) > 0.4 ? card->model->throttle : 0; /* bit 0: idle */
}
#ifndef OLD_DRIVER
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, 1, reasons(card))
#endif
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, 1, reasons(card))

/* 0: shutdown, 1: slowdown, 2: highest of the memory, 3: highest of the chip */
API int nvmlDeviceGetTemperatureThreshold(Device device, unsigned which, unsigned *to) {
    static const unsigned DEGREES[] = {95, 92, 95, 87};
    WHOLE(nvmlDeviceGetTemperatureThreshold);
    NEEDS(which < 2 || which == 3 || (which == 2 && card->model->memory_sensor));
    *to = DEGREES[which];
    return SUCCESS;
}

NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, 1, busy(card) > 0.25 ? card->model->pcie_generation : 1)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, 1, card->model->pcie_generation)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, 1, 16)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, 1, 16)
NUMBER(nvmlDeviceGetPcieReplayCounter, unsigned, 1, card->number == 1 ? 12 : 0)

/* KiB/s. 0: sent, 1: received */
API int nvmlDeviceGetPcieThroughput(Device device, unsigned counter, unsigned *to) {
    WHOLE(nvmlDeviceGetPcieThroughput);
    NEEDS(!card->mig);
    if (counter > 1) return INVALID_ARGUMENT;
    *to = (unsigned)(busy(card) * (counter ? 2600000 : 900000));
    return SUCCESS;
}

/* --- errors ---------------------------------------------------------------------------------------------------------- */

API int nvmlDeviceGetEccMode(Device device, unsigned *current, unsigned *pending) {
    WHOLE(nvmlDeviceGetEccMode);
    NEEDS(card->model->ecc);
    *current = *pending = 1;
    return SUCCESS;
}

/* kind 0: corrected, 1: not; counter 0: since the driver was loaded, 1: over the card's life. Cards 1, 9, … have some. */
static unsigned ecc_errors(const Card *card, unsigned kind, unsigned counter) {
    return card->number % 8 != 1 ? 0 : kind ? counter : counter ? 27 : 3;
}

API int nvmlDeviceGetTotalEccErrors(Device device, unsigned kind, unsigned counter, unsigned long long *to) {
    WHOLE(nvmlDeviceGetTotalEccErrors);
    NEEDS(card->model->ecc);
    *to = ecc_errors(card, kind, counter);
    return SUCCESS;
}

API int nvmlDeviceGetMemoryErrorCounter(Device device, unsigned kind, unsigned counter, unsigned location, unsigned long long *to) {
    WHOLE(nvmlDeviceGetMemoryErrorCounter);
    NEEDS(card->model->ecc && (location == 2 || location == 7)); /* device memory, SRAM */
    *to = location == 2 ? ecc_errors(card, kind, counter) : 0;
    return SUCCESS;
}

static int remapped_rows(const Card *card) { return card->model->architecture == 7; }

#ifndef OLD_DRIVER
API int nvmlDeviceGetRemappedRows(Device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    WHOLE(nvmlDeviceGetRemappedRows);
    NEEDS(card->model->remapping);
    *corrected = (unsigned)remapped_rows(card);
    *uncorrected = *pending = *failed = 0;
    return SUCCESS;
}
#endif

/* cause 0: several errors that could be corrected, 1: one that could not */
static int write_pages(const Card *card, unsigned cause, unsigned *count, unsigned long long *pages, unsigned long long *times) {
    NEEDS(card->model->retirement);
    const unsigned found = cause == 0 ? 2 : 1, room = *count;
    *count = found;
    if (room < found || !pages) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < found; i++) {
        pages[i] = 0x1f3a2000ULL + i * 0x10000 + cause * 0x100000;
        if (times) times[i] = 1700000000ULL + i;
    }
    return SUCCESS;
}

API int nvmlDeviceGetRetiredPages(Device device, unsigned cause, unsigned *count, unsigned long long *pages) {
    WHOLE(nvmlDeviceGetRetiredPages);
    return write_pages(card, cause, count, pages, NULL);
}
#ifndef OLD_DRIVER
API int nvmlDeviceGetRetiredPages_v2(Device device, unsigned cause, unsigned *count, unsigned long long *pages, unsigned long long *times) {
    WHOLE(nvmlDeviceGetRetiredPages_v2);
    return write_pages(card, cause, count, pages, times);
}
#endif
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, unsigned, card->model->retirement, 0)

/* --- MIG ------------------------------------------------------------------------------------------------------------- */

API int nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending) {
    WHOLE(nvmlDeviceGetMigMode);
    NEEDS(card->model->mig);
    *current = *pending = (unsigned)card->mig;
    return SUCCESS;
}

API int nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned *count) {
    WHOLE(nvmlDeviceGetMaxMigDeviceCount);
    *count = card->model->mig ? MOST_INSTANCES : 0;
    return SUCCESS;
}

API int nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device *to) {
    WHOLE(nvmlDeviceGetMigDeviceHandleByIndex);
    NEEDS(card->model->mig);
    if (index >= (unsigned)card->instances) return NOT_FOUND;
    *to = handle_of(card, (int)index);
    return SUCCESS;
}

API int nvmlDeviceIsMigDeviceHandle(Device device, unsigned *is) {
    CARD(nvmlDeviceIsMigDeviceHandle);
    *is = instance >= 0;
    return SUCCESS;
}

API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device device, Device *to) {
    CARD(nvmlDeviceGetDeviceHandleFromMigDeviceHandle);
    if (instance < 0) return INVALID_ARGUMENT;
    *to = handle_of(card, -1);
    return SUCCESS;
}

API int nvmlDeviceGetGpuInstanceId(Device device, unsigned *id) {
    CARD(nvmlDeviceGetGpuInstanceId);
    NEEDS(instance >= 0);
    *id = (unsigned)instance + 1;
    return SUCCESS;
}

API int nvmlDeviceGetComputeInstanceId(Device device, unsigned *id) {
    CARD(nvmlDeviceGetComputeInstanceId);
    NEEDS(instance >= 0);
    *id = 0;
    return SUCCESS;
}

/* --- NVLink and topology --------------------------------------------------------------------------------------------- */

/* The card at the other end: cards with links to each other stand in pairs. NULL: a switch, or nobody. */
static const Card *partner(const Card *card) {
    const int other = card->number ^ 1;
    return !card->model->switched && other < card_count && cards[other].listed && cards[other].model == card->model ? &cards[other] : NULL;
}

static int links_of(const Card *card) { return card->model->switched || partner(card) ? card->model->links : 0; }

#define LINK(name) WHOLE(name); NEEDS(card->model->links); if (link >= (unsigned)card->model->links) return INVALID_ARGUMENT

API int nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned *active) {
    LINK(nvmlDeviceGetNvLinkState);
    *active = links_of(card) > 0;
    return SUCCESS;
}

API int nvmlDeviceGetNvLinkVersion(Device device, unsigned link, unsigned *version) {
    LINK(nvmlDeviceGetNvLinkVersion);
    *version = (unsigned)card->model->link_version;
    return SUCCESS;
}

API int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link, PciInfo *info) {
    LINK(nvmlDeviceGetNvLinkRemotePciInfo_v2);
    NEEDS(links_of(card));
    if (partner(card)) write_pci(info, bus_of(partner(card)), 0x20b510de);
    else write_pci(info, 0x03 + link / 5, 0x22a310de); /* one of the four switches */
    return SUCCESS;
}

#ifndef OLD_DRIVER
/* 0: a card, 2: a switch, 255: not known */
API int nvmlDeviceGetNvLinkRemoteDeviceType(Device device, unsigned link, unsigned *to) {
    LINK(nvmlDeviceGetNvLinkRemoteDeviceType);
    *to = partner(card) ? 0 : links_of(card) ? 2 : 255;
    return SUCCESS;
}
#endif

API int nvmlDeviceGetNvLinkCapability(Device device, unsigned link, unsigned capability, unsigned *to) {
    LINK(nvmlDeviceGetNvLinkCapability);
    *to = capability != 4; /* no SLI bridge */
    return SUCCESS;
}

#define PAIR(name)                                           \
    Card *card, *other;                                      \
    int instance, part;                                      \
    TRY(enter_device(F_##name, device, &card, &instance));   \
    TRY(resolve(second, &other, &part))

static int node_of(const Card *card) { return card->number % 8 / 4; }

API int nvmlDeviceGetTopologyCommonAncestor(Device device, Device second, unsigned *level) {
    PAIR(nvmlDeviceGetTopologyCommonAncestor);
    *level = card == other ? 0 : card->number / 2 == other->number / 2 ? 10 : node_of(card) == node_of(other) ? 40 : 50;
    return SUCCESS;
}

/* which 0: read, 1: write, 2: NVLink, 3: atomics, 4: PCIe. Status 0: works, 1: the chipset does not, 2: the card does not, 5: not so. */
API int nvmlDeviceGetP2PStatus(Device device, Device second, unsigned which, unsigned *status) {
    PAIR(nvmlDeviceGetP2PStatus);
    const int linked = card != other && ((card->model->switched && other->model->switched && !card->mig && !other->mig) || partner(card) == other);
    if (which > 5) return INVALID_ARGUMENT;
    if (linked) *status = 0;
    else if (which == 2 || which == 3) *status = 5;
    else if (card->model->display || other->model->display) *status = 2;
    else *status = node_of(card) == node_of(other) && !card->mig && !other->mig ? 0 : 1;
    return SUCCESS;
}

API int nvmlDeviceGetCpuAffinity(Device device, unsigned size, unsigned long *mask) {
    CARD(nvmlDeviceGetCpuAffinity);
    if (!size) return INVALID_ARGUMENT;
    memset(mask, 0, size * sizeof *mask);
    mask[0] = node_of(card) ? 0xffff0000ffff0000UL : 0x0000ffff0000ffffUL;
    return SUCCESS;
}

API int nvmlDeviceGetMemoryAffinity(Device device, unsigned size, unsigned long *mask, unsigned scope) {
    CARD(nvmlDeviceGetMemoryAffinity);
    (void)scope;
    if (!size) return INVALID_ARGUMENT;
    memset(mask, 0, size * sizeof *mask);
    mask[0] = 1UL << node_of(card);
    return SUCCESS;
}

/* Only for cards that are a node of their own. */
NUMBER(nvmlDeviceGetNumaNodeId, int, 0, node_of(card))

/* --- several values at once ------------------------------------------------------------------------------------------ */

#ifndef OLD_DRIVER
enum { T_UNSIGNED = 1, T_ULL = 3 };

static int field(const Card *card, unsigned id, unsigned scope, int *type, Value *value) {
    const Model *model = card->model;
    const int links = links_of(card);
    *type = T_ULL;
    value->ull = 0;
    switch (id) {
    case 1: case 2: NEEDS(model->ecc); value->ull = 1; break;
    case 3: case 4: NEEDS(model->ecc); value->ull = ecc_errors(card, id == 4, 0); break;
    case 5: case 6: NEEDS(model->ecc); value->ull = ecc_errors(card, id == 6, 1); break;
    case 29: case 30: NEEDS(model->retirement); value->ull = id == 29 ? 2 : 1; break;
    case 31: NEEDS(model->retirement); break;
    case 82: NEEDS(model->memory_sensor); *type = T_UNSIGNED; value->u = (unsigned)celsius(card) + 7; break;
    case 83: value->ull = (unsigned long long)(joules(card) * 1000); break;
    case 94: *type = T_UNSIGNED; value->u = card->number == 1 ? 12 : 0; break;
    case 138: case 139: /* KiB since the driver was loaded, of one link or (all bits set) of all */
        NEEDS(links);
        if (scope != ~0U && scope >= (unsigned)links) return INVALID_ARGUMENT;
        value->ull = (unsigned long long)(busy_integral(card) * (id == 138 ? 4e6 : 3.5e6)) * (scope == ~0U ? (unsigned)links : 1U);
        break;
    case 142: case 143: case 144: case 145:
        NEEDS(model->remapping);
        *type = T_UNSIGNED;
        value->u = id == 142 ? (unsigned)remapped_rows(card) : 0;
        break;
    case 185: case 186: *type = T_UNSIGNED; value->u = (unsigned)(watts(card) * (id == 186 ? 1020 : 1000)); break;
    case 187: *type = T_UNSIGNED; value->u = (unsigned)model->least_w * 1000; break;
    case 188: case 189: case 190: case 192: *type = T_UNSIGNED; value->u = (unsigned)model->cap_w * 1000; break;
    default: return NOT_SUPPORTED;
    }
    return SUCCESS;
}

API int nvmlDeviceGetFieldValues(Device device, int count, FieldValue *values) {
    CARD(nvmlDeviceGetFieldValues);
    if (count <= 0) return INVALID_ARGUMENT;
    const long long at = unix_us();
    for (int i = 0; i < count; i++) {
        FieldValue *to = &values[i];
        to->time_us = at;
        to->latency_us = 0;
        to->code = field_fault(card->number, to->field);
        if (!to->code) to->code = instance >= 0 ? NOT_SUPPORTED : field(card, to->field, to->scope, &to->type, &to->value);
    }
    return SUCCESS;
}
#endif
