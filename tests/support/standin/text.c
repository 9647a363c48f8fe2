/* The text of a plan: a scanner for the flat object under "standin", tolerant about the rest. */
#include "plan.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const role_keys[] = {"inputs", "outputs", "parts", "scalars", "other"};

static const char *const scalar_names[] = {"float", "half", "bfloat16", "double", "int32", "int64"};

static const char *skip_space(const char *text)
{
    while (isspace((unsigned char)*text)) {
        text++;
    }
    return text;
}

/* What stands behind the first `"key":`, or NULL. */
const char *find_value(const char *text, const char *key)
{
    char quoted[64];
    int length = snprintf(quoted, sizeof quoted, "\"%s\"", key);
    while ((text = strstr(text, quoted)) != NULL) {
        text = skip_space(text + length);
        if (*text == ':') {
            return skip_space(text + 1);
        }
    }
    return NULL;
}

const char *scan_int(const char *text, int64_t *value)
{
    char *end;
    *value = strtoll(text, &end, 10);
    return end == text ? NULL : skip_space(end);
}

/* Each scanner returns what follows, without leading space, or NULL for text it cannot read. */
static const char *scan_char(const char *text, char expected)
{
    return text != NULL && *text == expected ? skip_space(text + 1) : NULL;
}

static const char *scan_string(const char *text, char *value, size_t size)
{
    size_t length = 0;
    if (*text != '"') {
        return NULL;
    }
    for (text++; *text != '"'; text++) {
        if (*text == '\0' || *text == '\\' || length + 1 >= size) {
            return NULL;
        }
        value[length++] = *text;
    }
    value[length] = '\0';
    return skip_space(text + 1);
}

/* `uid`, or `[uid, "type"]` for a scalar. */
static const char *scan_operand(const char *text, struct operand *operand)
{
    char name[16];
    if (operand->role != SCALAR) {
        return scan_int(text, &operand->uid);
    }
    if ((text = scan_char(text, '[')) == NULL || (text = scan_int(text, &operand->uid)) == NULL ||
        (text = scan_char(text, ',')) == NULL ||
        (text = scan_string(text, name, sizeof name)) == NULL) {
        return NULL;
    }
    for (int i = 0; i < SCALAR_COUNT; i++) {
        if (strcmp(name, scalar_names[i]) == 0) {
            operand->type = (enum scalar)i;
            return scan_char(text, ']');
        }
    }
    return NULL;
}

static const char *scan_operands(const char *text, enum role role, struct plan *plan)
{
    if ((text = scan_char(text, '[')) == NULL || *text == ']') {
        return scan_char(text, ']');
    }
    for (;;) {
        if (plan->operand_count == MAX_OPERANDS) {
            return NULL;
        }
        struct operand *operand = &plan->operands[plan->operand_count++];
        operand->role = role;
        if ((text = scan_operand(text, operand)) == NULL || *text != ',') {
            return scan_char(text, ']');
        }
        text = scan_char(text, ',');
    }
}

static const char *scan_launch(const char *text, enum launch *launch)
{
    char name[16];
    text = scan_string(text, name, sizeof name);
    for (int i = 0; text != NULL && i < LAUNCH_COUNT; i++) {
        if (strcmp(name, launch_names[i]) == 0) {
            *launch = (enum launch)i;
            return text;
        }
    }
    return NULL;
}

/* `[n, n, ...]` with at most MAX_RANK numbers. */
static const char *scan_list(const char *text, int64_t *items, size_t *count)
{
    *count = 0;
    if ((text = scan_char(text, '[')) == NULL || *text == ']') {
        return scan_char(text, ']');
    }
    for (;;) {
        if (*count == MAX_RANK || (text = scan_int(text, &items[(*count)++])) == NULL ||
            *text != ',') {
            return scan_char(text, ']');
        }
        text = scan_char(text, ',');
    }
}

/* `[uid, [dims], [strides], [fixed axes], [steady axes]]` */
static const char *scan_geometry(const char *text, struct declared *declared)
{
    int64_t axes[MAX_RANK];
    size_t count;
    if ((text = scan_char(text, '[')) == NULL || (text = scan_int(text, &declared->uid)) == NULL ||
        (text = scan_char(text, ',')) == NULL ||
        (text = scan_list(text, declared->dim, &declared->rank)) == NULL ||
        (text = scan_char(text, ',')) == NULL ||
        (text = scan_list(text, declared->stride, &count)) == NULL || count != declared->rank) {
        return NULL;
    }
    for (int kind = 0; kind < 2; kind++) {
        bool *marks = kind == 0 ? declared->fixed : declared->steady;
        if ((text = scan_char(text, ',')) == NULL ||
            (text = scan_list(text, axes, &count)) == NULL) {
            return NULL;
        }
        for (size_t i = 0; i < count; i++) {
            if (axes[i] < 0 || axes[i] >= (int64_t)declared->rank) {
                return NULL;
            }
            marks[axes[i]] = true;
        }
    }
    return scan_char(text, ']');
}

static const char *scan_declared(const char *text, struct plan *plan)
{
    if ((text = scan_char(text, '[')) == NULL || *text == ']') {
        return scan_char(text, ']');
    }
    for (;;) {
        if (plan->declared_count == MAX_OPERANDS ||
            (text = scan_geometry(text, &plan->declared[plan->declared_count++])) == NULL ||
            *text != ',') {
            return scan_char(text, ']');
        }
        text = scan_char(text, ',');
    }
}

/* `[uid, axis]` */
static const char *scan_sized(const char *text, struct plan *plan)
{
    int64_t pair[MAX_RANK];
    size_t count;
    text = scan_list(text, pair, &count);
    if (text == NULL || count != 2) {
        return NULL;
    }
    plan->sized_by = pair[0];
    plan->sized_axis = pair[1];
    return text;
}

/* The axis that says the count is one of a declared operand's. */
static bool is_sized_well(const struct plan *plan)
{
    for (size_t o = 0; o < plan->declared_count; o++) {
        if (plan->declared[o].uid == plan->sized_by) {
            return plan->sized_axis < (int64_t)plan->declared[o].rank;
        }
    }
    return plan->sized_axis < 0;
}

static const char *scan_member(const char *text, struct plan *plan)
{
    char key[16];
    if ((text = scan_string(text, key, sizeof key)) == NULL ||
        (text = scan_char(text, ':')) == NULL) {
        return NULL;
    }
    if (strcmp(key, "workspace") == 0) {
        return scan_int(text, &plan->workspace);
    }
    if (strcmp(key, "count") == 0) {
        return scan_int(text, &plan->count);
    }
    if (strcmp(key, "growth") == 0) {
        return scan_int(text, &plan->growth);
    }
    if (strcmp(key, "declared") == 0) {
        return scan_declared(text, plan);
    }
    if (strcmp(key, "sized") == 0) {
        return scan_sized(text, plan);
    }
    if (strcmp(key, "launch") == 0) {
        return scan_launch(text, &plan->launch);
    }
    for (int role = INPUT; role <= OTHER; role++) {
        if (strcmp(key, role_keys[role]) == 0) {
            return scan_operands(text, (enum role)role, plan);
        }
    }
    return NULL;
}

bool scan_standin(const char *text, struct plan *plan)
{
    plan->operand_count = 0;
    plan->launch = LAUNCH_plain;
    plan->sized_axis = -1;
    if ((text = scan_char(text, '{')) == NULL) {
        return false;
    }
    while (*text != '}') {
        if ((text = scan_member(text, plan)) == NULL) {
            return false;
        }
        if (*text == ',') {
            text = skip_space(text + 1);
        } else if (*text != '}') {
            return false;
        }
    }
    for (size_t i = 0; i < plan->operand_count; i++) {
        for (size_t j = 0; j < i; j++) {
            if (plan->operands[i].uid == plan->operands[j].uid) {
                return false;
            }
        }
    }
    return plan->workspace >= 0 && plan->count >= 0 && is_sized_well(plan);
}
