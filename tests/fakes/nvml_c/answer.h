/* What every answer needs: the structures of nvml.h, and the way from a handle to its card. */
#pragma once

#include "fake.h"

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

/* A number that the model states, or another expression of `card`. */
#define NUMBER(name, type, condition, expression)       \
    API int name(Device device, type *to) {             \
        WHOLE(name);                                    \
        NEEDS(condition);                               \
        *to = (type)(expression);                       \
        return SUCCESS;                                 \
    }

static inline uint64_t total_of(const Card *card, int instance) {
    return card->model->total_mib * MIB / (instance < 0 ? 1 : (uint64_t)card->instances);
}

/* Where one part asks another. */
int text(char *to, unsigned size, const char *from);
long long unix_us(void);
void write_pci(PciInfo *info, unsigned bus, unsigned id);
unsigned bus_of(const Card *card);
int links_of(const Card *card);
