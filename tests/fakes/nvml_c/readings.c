/* How a card is doing, what went wrong on it, and several such values at once. */
#define _GNU_SOURCE
#include "answer.h"

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

#ifndef OLD_DRIVER
static int remapped_rows(const Card *card) { return card->model->architecture == 7; }

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
    for (int i = 0; i < overrun(); i++) pages[room + (unsigned)i] = ~0ULL;
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
    for (int i = 0; i < overrun(); i++) values[count + i] = (FieldValue){.field = ~0U, .time_us = at, .latency_us = at};
    return SUCCESS;
}
#endif
