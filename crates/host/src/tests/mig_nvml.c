/* Stand-in for libnvidia-ml.so.1: two split GPUs with two MIG devices each.
 *
 * LOG: file that tells of starts and ends. INIT: what the start answers. HANG, NO_SHUTDOWN,
 * NO_PARENT: what is wrong with it. Numbers are those of NVML's header. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_FOUND = 6, GPU_LOST = 15 };

struct device {
    const char *uuid;
    const char *bus_id;
    struct device *parent;
};

struct pci_info {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

static struct device devices[] = {
    {"GPU-a", "00000000:0F:00.0", 0},
    {"GPU-b", "00010000:CA:00.0", 0},
    {"GPU-odd", "somewhere", 0},
    {"MIG-a1", 0, &devices[0]},
    {"MIG-b1", 0, &devices[1]},
    {"MIG-a2", 0, &devices[0]},
    {"MIG-b2", 0, &devices[1]},
    {"MIG-0dd", 0, &devices[2]},
};
static int sessions;

static void tell(const char *what)
{
    FILE *log = fopen(LOG, "a");
    if (log) {
        fprintf(log, "%s\n", what);
        fclose(log);
    }
}

int nvmlInit_v2(void)
{
    tell("start");
#ifdef HANG
    for (;;)
        pause();
#endif
#ifdef INIT
    return INIT;
#endif
    sessions++;
    return SUCCESS;
}

#ifndef NO_SHUTDOWN
int nvmlShutdown(void)
{
    if (!sessions)
        return UNINITIALIZED;
    sessions--;
    tell("end");
    return SUCCESS;
}
#endif

int nvmlDeviceGetHandleByUUID(const char *uuid, struct device **device)
{
    if (!sessions)
        return UNINITIALIZED;
    if (!strcmp(uuid, "MIG-105f"))
        return GPU_LOST;
    for (unsigned i = 0; i < sizeof devices / sizeof *devices; i++)
        if (!strcmp(uuid, devices[i].uuid)) {
            *device = &devices[i];
            return SUCCESS;
        }
    return NOT_FOUND;
}

#ifndef NO_PARENT
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(struct device *mig, struct device **gpu)
{
    if (!sessions)
        return UNINITIALIZED;
    if (!mig->parent)
        return INVALID_ARGUMENT;
    *gpu = mig->parent;
    return SUCCESS;
}
#endif

/* Not for MIG devices: who forgets to ask for the parent is to notice. */
int nvmlDeviceGetPciInfo_v3(struct device *device, struct pci_info *info)
{
    if (!sessions)
        return UNINITIALIZED;
    if (!device->bus_id)
        return INVALID_ARGUMENT;
    memset(info, 0, sizeof *info);
    strncpy(info->bus_id, device->bus_id, sizeof info->bus_id - 1);
    return SUCCESS;
}
