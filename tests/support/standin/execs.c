/* Executable graphs of the stand-in for libcuda.so.1.
 *
 * Nodes run in the order of their edges; where edges leave a choice the node that was added last
 * goes first, so that a lost edge shows in the results.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <string.h>

struct exec_node {
    const struct node *source; /* NULL in a copy: it cannot be changed */
    struct work work;
};

struct exec {
    struct object object;
    atomic_int users; /* calls that are inside it now */
    struct exec_node *nodes; /* in the order in which they run */
    size_t count;
    struct kept kept;
};

static CUresult make_exec(size_t room, struct exec **exec)
{
    *exec = calloc(1, sizeof **exec);
    REQUIRE(*exec != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    (*exec)->object.kind = EXEC;
    (*exec)->nodes = calloc(room + 1, sizeof *(*exec)->nodes);
    if ((*exec)->nodes == NULL) {
        free(*exec);
        *exec = NULL;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

void drop_exec(struct exec *exec)
{
    atomic_store(&exec->object.dead, true);
    for (size_t i = 0; i < exec->count; i++) {
        free_work(&exec->nodes[i].work);
    }
    free(exec->nodes);
    release_all(&exec->kept);
    exec->nodes = NULL;
    exec->count = 0;
}

static CUresult push(struct exec *exec, const struct node *source, const struct work *work)
{
    REQUIRE_SUCCESS(copy_work(work, &exec->nodes[exec->count].work));
    exec->nodes[exec->count++].source = source;
    return CUDA_SUCCESS;
}

CUresult copy_exec(const struct exec *from, struct exec **to)
{
    REQUIRE_SUCCESS(make_exec(from->count, to));
    for (size_t i = 0; i < from->count; i++) {
        CUresult status = push(*to, NULL, &from->nodes[i].work);
        if (status != CUDA_SUCCESS) {
            drop_exec(*to);
            return status;
        }
    }
    keep_all(&(*to)->kept, &from->kept);
    return CUDA_SUCCESS;
}

CUresult run_exec(const struct exec *exec)
{
    for (size_t i = 0; i < exec->count; i++) {
        REQUIRE_SUCCESS(run_work(&exec->nodes[i].work, true));
    }
    return CUDA_SUCCESS;
}

static bool is_placed(const struct exec *exec, const struct node *node)
{
    for (size_t i = 0; i < exec->count; i++) {
        if (exec->nodes[i].source == node) {
            return true;
        }
    }
    return false;
}

static bool is_ready(const struct exec *exec, const struct graph *graph, const struct node *node)
{
    for (size_t i = 0; i < graph->edge_count; i++) {
        if (graph->edges[i].to == node && !is_placed(exec, graph->edges[i].from)) {
            return false;
        }
    }
    return !is_placed(exec, node);
}

static CUresult fill(struct exec *exec, const struct graph *graph)
{
    while (exec->count < graph->node_count) {
        size_t i = graph->node_count;
        while (i > 0 && !is_ready(exec, graph, graph->nodes[i - 1])) {
            i--;
        }
        REQUIRE(i > 0, CUDA_ERROR_INVALID_VALUE); /* a cycle */
        REQUIRE_SUCCESS(push(exec, graph->nodes[i - 1], &graph->nodes[i - 1]->work));
    }
    return CUDA_SUCCESS;
}

static CUresult check_exec(const struct exec *exec)
{
    return check_object(exec, EXEC, CUDA_ERROR_INVALID_VALUE);
}

/* An executable graph is used by one thread at a time. */
static void use(struct exec *exec)
{
    if (atomic_fetch_add(&exec->users, 1) > 0) {
        violate(VIOLATION_SHARED);
    }
}

static void end_use(struct exec *exec) { atomic_fetch_sub(&exec->users, 1); }

static CUresult instantiate(struct exec **exec, const struct graph *graph)
{
    for (size_t i = 0; i < graph->node_count; i++) {
        if (graph->nodes[i]->work.type == NODE_KERNEL) {
            REQUIRE_SUCCESS(check_object(function_of(&graph->nodes[i]->work.kernel), FUNCTION,
                                         CUDA_ERROR_INVALID_HANDLE));
        }
    }
    struct exec *made;
    REQUIRE_SUCCESS(make_exec(graph->node_count, &made));
    CUresult status = fill(made, graph);
    if (status != CUDA_SUCCESS) {
        drop_exec(made);
        return status;
    }
    keep_all(&made->kept, &graph->kept);
    *exec = made;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphInstantiateWithFlags(struct exec **exec, struct graph *graph,
                                            unsigned long long flags)
{
    ENTER_INITIALIZED(cuGraphInstantiateWithFlags);
    REQUIRE(exec != NULL && flags <= 15, CUDA_ERROR_INVALID_VALUE);
    REQUIRE_SUCCESS(check_object(graph, GRAPH, CUDA_ERROR_INVALID_VALUE));
    REQUIRE_SUCCESS(refuse_in_capture());
    REQUIRE_SUCCESS(instantiate(exec, graph));
    add_live(LIVE_EXEC, 1);
    log_call("cuGraphInstantiateWithFlags 0x%jx 0x%jx", (uintmax_t)(uintptr_t)*exec,
             (uintmax_t)(uintptr_t)graph);
    return leave(CALL_cuGraphInstantiateWithFlags, CUDA_SUCCESS);
}

/* The node has what `child` is now, and keeps what it keeps. */
EXPORT CUresult cuGraphAddChildGraphNode(struct node **node, struct graph *graph,
                                         struct node *const *after, size_t count,
                                         struct graph *child)
{
    ENTER_INITIALIZED(cuGraphAddChildGraphNode);
    REQUIRE_SUCCESS(check_object(graph, GRAPH, CUDA_ERROR_INVALID_VALUE));
    REQUIRE_SUCCESS(check_object(child, GRAPH, CUDA_ERROR_INVALID_VALUE));
    REQUIRE(node != NULL && after == NULL && count == 0, CUDA_ERROR_INVALID_VALUE);
    struct work work = {.type = NODE_GRAPH};
    REQUIRE_SUCCESS(instantiate(&work.child, child));
    return leave(CALL_cuGraphAddChildGraphNode, add_node(graph, &work, node));
}

EXPORT CUresult cuGraphExecDestroy(struct exec *exec)
{
    ENTER_INITIALIZED(cuGraphExecDestroy);
    REQUIRE_SUCCESS(check_exec(exec));
    REQUIRE_SUCCESS(refuse_in_capture());
    if (atomic_load(&exec->users) > 0) {
        violate(VIOLATION_DESTROYED);
        atomic_store(&exec->object.dead, true); /* its nodes stay for the call that is inside */
    } else {
        drop_exec(exec);
    }
    add_live(LIVE_EXEC, -1);
    log_call("cuGraphExecDestroy 0x%jx", (uintmax_t)(uintptr_t)exec);
    return leave(CALL_cuGraphExecDestroy, CUDA_SUCCESS);
}

EXPORT CUresult cuGraphUpload(struct exec *exec, CUstream argument)
{
    ENTER_INITIALIZED(cuGraphUpload);
    REQUIRE_SUCCESS(check_exec(exec));
    REQUIRE_SUCCESS(refuse_in_capture());
    struct stream *stream = NULL;
    pthread_mutex_lock(&standin_lock);
    CUresult status = resolve_idle(argument, &stream);
    pthread_mutex_unlock(&standin_lock);
    REQUIRE_SUCCESS(status);
    log_call("cuGraphUpload 0x%jx 0x%jx", (uintmax_t)(uintptr_t)exec,
             (uintmax_t)(uintptr_t)argument);
    return leave(CALL_cuGraphUpload, CUDA_SUCCESS);
}

/* On a stream that captures, a copy becomes a child graph of what it has captured. */
EXPORT CUresult cuGraphLaunch(struct exec *exec, CUstream stream)
{
    ENTER_INITIALIZED(cuGraphLaunch);
    REQUIRE_SUCCESS(check_exec(exec));
    use(exec);
    sleep_delay();
    CUresult status = submit(stream, &(struct launch_node){.type = NODE_GRAPH, .after = {-1, -1},
                                                           .child = exec}, 1);
    end_use(exec);
    REQUIRE_SUCCESS(status);
    log_call("cuGraphLaunch 0x%jx 0x%jx", (uintmax_t)(uintptr_t)exec,
             (uintmax_t)(uintptr_t)stream);
    return leave(CALL_cuGraphLaunch, CUDA_SUCCESS);
}

/* Changing nodes */

static CUresult find(struct exec *exec, const struct node *node, enum node_type type,
                     struct work **work)
{
    REQUIRE_SUCCESS(check_exec(exec));
    REQUIRE_SUCCESS(check_object(node, NODE, CUDA_ERROR_INVALID_VALUE));
    for (size_t i = 0; i < exec->count; i++) {
        if (exec->nodes[i].source == node && exec->nodes[i].work.type == type) {
            *work = &exec->nodes[i].work;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(struct exec *exec, struct node *node,
                                                  const struct kernel_params *params)
{
    ENTER_INITIALIZED(cuGraphExecKernelNodeSetParams);
    struct work *work, changed;
    REQUIRE_SUCCESS(find(exec, node, NODE_KERNEL, &work));
    REQUIRE(params != NULL && params->function == work->kernel.function &&
                function_of(params) == function_of(&work->kernel),
            CUDA_ERROR_INVALID_VALUE); /* the real one allows another function of the context */
    REQUIRE_SUCCESS(make_kernel_work(params, &changed));
    memcpy(changed.attributes, work->attributes, sizeof changed.attributes);
    use(exec);
    free_work(work);
    *work = changed;
    end_use(exec);
    return leave(CALL_cuGraphExecKernelNodeSetParams, CUDA_SUCCESS);
}

/* The memory must stay in the context in which the node was made. */
static CUresult check_owner(uintptr_t address, CUcontext context)
{
    CUcontext owner = NULL;
    REQUIRE(locate(address, 1, &owner) != BLOCK_INSIDE || owner == context,
            CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphExecMemsetNodeSetParams(struct exec *exec, struct node *node,
                                               const struct memset_params *params,
                                               CUcontext context)
{
    ENTER_INITIALIZED(cuGraphExecMemsetNodeSetParams);
    struct work *work;
    REQUIRE_SUCCESS(find(exec, node, NODE_MEMSET, &work));
    REQUIRE_SUCCESS(check_memset(params));
    REQUIRE(context == work->context, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(params->height == 1 && work->memset.height == 1, CUDA_ERROR_INVALID_VALUE);
    REQUIRE_SUCCESS(check_owner(params->target, context));
    use(exec);
    work->memset = *params;
    end_use(exec);
    return leave(CALL_cuGraphExecMemsetNodeSetParams, CUDA_SUCCESS);
}

EXPORT CUresult cuGraphExecMemcpyNodeSetParams(struct exec *exec, struct node *node,
                                               const struct memcpy_params *params,
                                               CUcontext context)
{
    ENTER_INITIALIZED(cuGraphExecMemcpyNodeSetParams);
    struct work *work;
    REQUIRE_SUCCESS(find(exec, node, NODE_MEMCPY, &work));
    REQUIRE_SUCCESS(check_memcpy(params));
    REQUIRE(context == work->context, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(params->height == 1 && params->depth == 1 && work->memcpy.height == 1 &&
                work->memcpy.depth == 1,
            CUDA_ERROR_INVALID_VALUE);
    REQUIRE(params->source.memory_type == work->memcpy.source.memory_type &&
                params->target.memory_type == work->memcpy.target.memory_type,
            CUDA_ERROR_INVALID_VALUE);
    use(exec);
    work->memcpy = *params;
    end_use(exec);
    return leave(CALL_cuGraphExecMemcpyNodeSetParams, CUDA_SUCCESS);
}
