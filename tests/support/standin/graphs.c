/* CUDA graphs of the stand-in for libcuda.so.1: nodes, edges, and how callers read and make them.
 *
 * As in CUDA a graph is used by one thread at a time, so nothing here takes a lock; captures are
 * made with the driver's lock held.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <string.h>

struct graph *make_graph(void)
{
    struct graph *graph = calloc(1, sizeof *graph);
    if (graph == NULL) {
        abort();
    }
    graph->object.kind = GRAPH;
    return graph;
}

/* The small objects stay, marked dead; what they hold goes. */
void drop_graph(struct graph *graph)
{
    atomic_store(&graph->object.dead, true);
    for (size_t i = 0; i < graph->node_count; i++) {
        atomic_store(&graph->nodes[i]->object.dead, true);
        free_work(&graph->nodes[i]->work);
    }
    free(graph->nodes);
    free(graph->edges);
    release_all(&graph->kept);
    graph->nodes = NULL;
    graph->edges = NULL;
    graph->node_count = graph->edge_count = 0;
}

CUresult add_node(struct graph *graph, struct work *work, struct node **node)
{
    struct node **nodes =
        realloc(graph->nodes, (graph->node_count + 1) * sizeof *graph->nodes);
    if (nodes != NULL) {
        graph->nodes = nodes;
    }
    *node = nodes == NULL ? NULL : calloc(1, sizeof **node);
    if (*node == NULL) {
        free_work(work);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    (*node)->object.kind = NODE;
    (*node)->graph = graph;
    (*node)->work = *work;
    graph->nodes[graph->node_count++] = *node;
    return CUDA_SUCCESS;
}

static CUresult push_edge(struct graph *graph, struct edge edge)
{
    struct edge *edges = realloc(graph->edges, (graph->edge_count + 1) * sizeof *edges);
    REQUIRE(edges != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    graph->edges = edges;
    graph->edges[graph->edge_count++] = edge;
    return CUDA_SUCCESS;
}

CUresult add_edge(struct graph *graph, struct node *from, struct node *to, bool programmatic)
{
    struct edge edge = {.from = from, .to = to};
    if (programmatic) {
        edge.data[0] = edge.data[2] = 1;
    }
    return push_edge(graph, edge);
}

static CUresult check_graph(const struct graph *graph)
{
    return check_object(graph, GRAPH, CUDA_ERROR_INVALID_VALUE);
}

static CUresult check_node(const struct node *node, enum node_type type)
{
    REQUIRE_SUCCESS(check_object(node, NODE, CUDA_ERROR_INVALID_VALUE));
    REQUIRE(node->work.type == type, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

static CUresult check_member(const struct graph *graph, const struct node *node)
{
    REQUIRE_SUCCESS(check_object(node, NODE, CUDA_ERROR_INVALID_VALUE));
    REQUIRE(node->graph == graph, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphCreate(struct graph **graph, unsigned flags)
{
    ENTER_INITIALIZED(cuGraphCreate);
    REQUIRE(graph != NULL && flags == 0, CUDA_ERROR_INVALID_VALUE);
    *graph = make_graph();
    add_live(LIVE_GRAPH, 1);
    return leave(CALL_cuGraphCreate, CUDA_SUCCESS);
}

EXPORT CUresult cuGraphDestroy(struct graph *graph)
{
    ENTER_INITIALIZED(cuGraphDestroy);
    REQUIRE_SUCCESS(check_graph(graph));
    REQUIRE_SUCCESS(refuse_in_capture());
    drop_graph(graph);
    add_live(LIVE_GRAPH, -1);
    log_call("cuGraphDestroy 0x%jx", (uintmax_t)(uintptr_t)graph);
    return leave(CALL_cuGraphDestroy, CUDA_SUCCESS);
}

/* For the tests: destroys a graph of which the code under test never knew. */
EXPORT void standin_drop_graph(struct graph *graph)
{
    if (check_graph(graph) == CUDA_SUCCESS) {
        drop_graph(graph);
        add_live(LIVE_GRAPH, -1);
    }
}

/* User objects */

static void drop_reference(struct user_object *object)
{
    if (atomic_fetch_sub(&object->references, 1) == 1) {
        add_live(LIVE_OBJECT, -1);
        object->destroy(object->pointer);
        free(object);
    }
}

CUresult keep_object(struct kept *kept, struct user_object *object)
{
    REQUIRE(kept->count < MAX_KEPT, CUDA_ERROR_OUT_OF_MEMORY);
    kept->objects[kept->count++] = object;
    return CUDA_SUCCESS;
}

void keep_all(struct kept *kept, const struct kept *from)
{
    for (size_t i = 0; i < from->count; i++) {
        if (keep_object(kept, from->objects[i]) != CUDA_SUCCESS) {
            abort();
        }
        atomic_fetch_add(&from->objects[i]->references, 1);
    }
}

void release_all(struct kept *kept)
{
    while (kept->count > 0) {
        drop_reference(kept->objects[--kept->count]);
    }
}

EXPORT CUresult cuUserObjectCreate(struct user_object **object, void *pointer,
                                   void (*destroy)(void *), unsigned references, unsigned flags)
{
    ENTER_INITIALIZED(cuUserObjectCreate);
    REQUIRE(object != NULL && destroy != NULL && references > 0 && flags == 1,
            CUDA_ERROR_INVALID_VALUE);
    *object = malloc(sizeof **object);
    REQUIRE(*object != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    **object = (struct user_object){(int)references, pointer, destroy};
    add_live(LIVE_OBJECT, 1);
    return leave(CALL_cuUserObjectCreate, CUDA_SUCCESS);
}

EXPORT CUresult cuUserObjectRelease(struct user_object *object, unsigned references)
{
    ENTER_INITIALIZED(cuUserObjectRelease);
    REQUIRE(object != NULL && references == 1, CUDA_ERROR_INVALID_VALUE);
    drop_reference(object);
    return leave(CALL_cuUserObjectRelease, CUDA_SUCCESS);
}

/* Flag 1 moves the caller's reference. */
EXPORT CUresult cuGraphRetainUserObject(struct graph *graph, struct user_object *object,
                                        unsigned references, unsigned flags)
{
    ENTER_INITIALIZED(cuGraphRetainUserObject);
    REQUIRE_SUCCESS(check_graph(graph));
    REQUIRE(object != NULL && references == 1 && flags == 1, CUDA_ERROR_INVALID_VALUE);
    return leave(CALL_cuGraphRetainUserObject, keep_object(&graph->kept, object));
}

static size_t position_in(const struct graph *graph, const struct node *node)
{
    size_t i = 0;
    while (graph->nodes[i] != node) {
        i++;
    }
    return i;
}

EXPORT CUresult cuGraphClone(struct graph **clone, struct graph *graph)
{
    ENTER_INITIALIZED(cuGraphClone);
    REQUIRE(clone != NULL, CUDA_ERROR_INVALID_VALUE);
    REQUIRE_SUCCESS(check_graph(graph));
    struct graph *made = make_graph();
    for (size_t i = 0; i < graph->node_count; i++) {
        struct work work;
        struct node *node;
        REQUIRE_SUCCESS(copy_work(&graph->nodes[i]->work, &work));
        REQUIRE_SUCCESS(add_node(made, &work, &node));
    }
    for (size_t i = 0; i < graph->edge_count; i++) {
        struct edge edge = graph->edges[i];
        edge.from = made->nodes[position_in(graph, edge.from)];
        edge.to = made->nodes[position_in(graph, edge.to)];
        REQUIRE_SUCCESS(push_edge(made, edge));
    }
    keep_all(&made->kept, &graph->kept);
    *clone = made;
    add_live(LIVE_GRAPH, 1);
    return leave(CALL_cuGraphClone, CUDA_SUCCESS);
}

/* Reading */

/* Copies up to `*room` of `count` items and nulls the rest, as the real calls do. */
#define FILL(array, room, count, value)                                                            \
    for (size_t i = 0; i < (room); i++) {                                                          \
        if (i < (count)) {                                                                         \
            (array)[i] = (value);                                                                  \
        } else {                                                                                   \
            memset(&(array)[i], 0, sizeof (array)[i]);                                             \
        }                                                                                          \
    }

EXPORT CUresult cuGraphGetNodes(struct graph *graph, struct node **nodes, size_t *count)
{
    ENTER_INITIALIZED(cuGraphGetNodes);
    REQUIRE_SUCCESS(check_graph(graph));
    REQUIRE(count != NULL, CUDA_ERROR_INVALID_VALUE);
    if (nodes != NULL) {
        FILL(nodes, *count, graph->node_count, graph->nodes[i]);
    }
    if (nodes == NULL || *count > graph->node_count) {
        *count = graph->node_count;
    }
    return leave(CALL_cuGraphGetNodes, CUDA_SUCCESS);
}

EXPORT CUresult cuGraphGetEdges_v2(struct graph *graph, struct node **from, struct node **to,
                                   unsigned char (*data)[8], size_t *count)
{
    static const unsigned char plain[8];
    ENTER_INITIALIZED(cuGraphGetEdges);
    REQUIRE_SUCCESS(check_graph(graph));
    REQUIRE(count != NULL && (from == NULL) == (to == NULL), CUDA_ERROR_INVALID_VALUE);
    if (from != NULL) {
        FILL(from, *count, graph->edge_count, graph->edges[i].from);
        FILL(to, *count, graph->edge_count, graph->edges[i].to);
        for (size_t i = 0; i < *count && i < graph->edge_count; i++) {
            if (data != NULL) {
                memcpy(data[i], graph->edges[i].data, sizeof data[i]);
            } else if (memcmp(graph->edges[i].data, plain, sizeof plain) != 0) {
                return CUDA_ERROR_LOSSY_QUERY;
            }
        }
    }
    if (from == NULL || *count > graph->edge_count) {
        *count = graph->edge_count;
    }
    return leave(CALL_cuGraphGetEdges, CUDA_SUCCESS);
}

EXPORT CUresult cuGraphNodeGetType(struct node *node, int *type)
{
    ENTER_INITIALIZED(cuGraphNodeGetType);
    REQUIRE_SUCCESS(check_object(node, NODE, CUDA_ERROR_INVALID_VALUE));
    REQUIRE(type != NULL, CUDA_ERROR_INVALID_VALUE);
    *type = (int)node->work.type;
    return leave(CALL_cuGraphNodeGetType, CUDA_SUCCESS);
}

/* What its pointers point at belongs to the node. */
EXPORT CUresult cuGraphKernelNodeGetParams_v2(struct node *node, struct kernel_params *params)
{
    ENTER_INITIALIZED(cuGraphKernelNodeGetParams);
    REQUIRE_SUCCESS(check_node(node, NODE_KERNEL));
    REQUIRE(params != NULL, CUDA_ERROR_INVALID_VALUE);
    *params = node->work.kernel;
    return leave(CALL_cuGraphKernelNodeGetParams, CUDA_SUCCESS);
}

EXPORT CUresult cuGraphMemsetNodeGetParams(struct node *node, struct memset_params *params)
{
    ENTER_INITIALIZED(cuGraphMemsetNodeGetParams);
    REQUIRE_SUCCESS(check_node(node, NODE_MEMSET));
    REQUIRE(params != NULL, CUDA_ERROR_INVALID_VALUE);
    *params = node->work.memset;
    return leave(CALL_cuGraphMemsetNodeGetParams, CUDA_SUCCESS);
}

EXPORT CUresult cuGraphMemcpyNodeGetParams(struct node *node, struct memcpy_params *params)
{
    ENTER_INITIALIZED(cuGraphMemcpyNodeGetParams);
    REQUIRE_SUCCESS(check_node(node, NODE_MEMCPY));
    REQUIRE(params != NULL, CUDA_ERROR_INVALID_VALUE);
    *params = node->work.memcpy;
    return leave(CALL_cuGraphMemcpyNodeGetParams, CUDA_SUCCESS);
}

EXPORT CUresult cuGraphKernelNodeGetAttribute(struct node *node, int id, struct attribute *value)
{
    ENTER_INITIALIZED(cuGraphKernelNodeGetAttribute);
    REQUIRE_SUCCESS(check_node(node, NODE_KERNEL));
    REQUIRE(value != NULL, CUDA_ERROR_INVALID_VALUE);
    switch (id) { /* those that a kernel node has: others are of streams or single launches */
    case 1: case 2: case ATTRIBUTE_CLUSTER: case 5: case ATTRIBUTE_PRIORITY: case 9: case 10:
    case 11: case 13: case 14: break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    *value = node->work.attributes[id];
    return leave(CALL_cuGraphKernelNodeGetAttribute, CUDA_SUCCESS);
}

EXPORT CUresult cuGraphKernelNodeCopyAttributes(struct node *to, struct node *from)
{
    ENTER_INITIALIZED(cuGraphKernelNodeCopyAttributes);
    REQUIRE_SUCCESS(check_node(to, NODE_KERNEL));
    REQUIRE_SUCCESS(check_node(from, NODE_KERNEL));
    REQUIRE(to->work.context == from->work.context, CUDA_ERROR_INVALID_CONTEXT);
    memcpy(to->work.attributes, from->work.attributes, sizeof to->work.attributes);
    return leave(CALL_cuGraphKernelNodeCopyAttributes, CUDA_SUCCESS);
}

/* Making */

static CUresult check_new(struct node **node, struct graph *graph, struct node *const *after,
                          size_t count)
{
    REQUIRE_SUCCESS(check_graph(graph));
    REQUIRE(node != NULL && (after != NULL || count == 0), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        REQUIRE_SUCCESS(check_member(graph, after[i]));
        for (size_t j = 0; j < i; j++) {
            REQUIRE(after[i] != after[j], CUDA_ERROR_INVALID_VALUE);
        }
    }
    return CUDA_SUCCESS;
}

static CUresult add_new(struct node **node, struct graph *graph, struct node *const *after,
                        size_t count, struct work *work)
{
    REQUIRE_SUCCESS(add_node(graph, work, node));
    for (size_t i = 0; i < count; i++) {
        REQUIRE_SUCCESS(add_edge(graph, after[i], *node, false));
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphAddKernelNode_v2(struct node **node, struct graph *graph,
                                        struct node *const *after, size_t count,
                                        const struct kernel_params *params)
{
    ENTER_INITIALIZED(cuGraphAddKernelNode);
    struct work work;
    REQUIRE_SUCCESS(check_new(node, graph, after, count));
    REQUIRE_SUCCESS(make_kernel_work(params, &work));
    return leave(CALL_cuGraphAddKernelNode, add_new(node, graph, after, count, &work));
}

EXPORT CUresult cuGraphAddMemsetNode(struct node **node, struct graph *graph,
                                     struct node *const *after, size_t count,
                                     const struct memset_params *params, CUcontext context)
{
    ENTER_INITIALIZED(cuGraphAddMemsetNode);
    REQUIRE_SUCCESS(check_new(node, graph, after, count));
    REQUIRE_SUCCESS(check_memset(params));
    REQUIRE(is_context(context), CUDA_ERROR_INVALID_CONTEXT);
    struct work work = {.type = NODE_MEMSET, .context = context, .memset = *params};
    return leave(CALL_cuGraphAddMemsetNode, add_new(node, graph, after, count, &work));
}

EXPORT CUresult cuGraphAddMemcpyNode(struct node **node, struct graph *graph,
                                     struct node *const *after, size_t count,
                                     const struct memcpy_params *params, CUcontext context)
{
    ENTER_INITIALIZED(cuGraphAddMemcpyNode);
    REQUIRE_SUCCESS(check_new(node, graph, after, count));
    REQUIRE_SUCCESS(check_memcpy(params));
    REQUIRE(is_context(context), CUDA_ERROR_INVALID_CONTEXT);
    struct work work = {.type = NODE_MEMCPY, .context = context, .memcpy = *params};
    return leave(CALL_cuGraphAddMemcpyNode, add_new(node, graph, after, count, &work));
}

EXPORT CUresult cuGraphAddEmptyNode(struct node **node, struct graph *graph,
                                    struct node *const *after, size_t count)
{
    ENTER_INITIALIZED(cuGraphAddEmptyNode);
    REQUIRE_SUCCESS(check_new(node, graph, after, count));
    struct work work = {.type = NODE_EMPTY};
    return leave(CALL_cuGraphAddEmptyNode, add_new(node, graph, after, count, &work));
}

static CUresult check_edge(const struct graph *graph, const struct edge *edge)
{
    static const unsigned char reserved[5];
    REQUIRE_SUCCESS(check_member(graph, edge->from));
    REQUIRE_SUCCESS(check_member(graph, edge->to));
    REQUIRE(edge->from != edge->to, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < graph->edge_count; i++) {
        REQUIRE(graph->edges[i].from != edge->from || graph->edges[i].to != edge->to,
                CUDA_ERROR_INVALID_VALUE);
    }
    bool from_kernel = edge->from->work.type == NODE_KERNEL;
    bool between_kernels = from_kernel && edge->to->work.type == NODE_KERNEL;
    REQUIRE(edge->data[0] <= 2 && (edge->data[0] == 0 || from_kernel), CUDA_ERROR_INVALID_VALUE);
    REQUIRE(edge->data[1] == 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(edge->data[2] <= 1 && (edge->data[2] == 0 || between_kernels),
            CUDA_ERROR_INVALID_VALUE);
    REQUIRE(memcmp(edge->data + 3, reserved, sizeof reserved) == 0, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphAddDependencies_v2(struct graph *graph, struct node *const *from,
                                          struct node *const *to, const unsigned char (*data)[8],
                                          size_t count)
{
    ENTER_INITIALIZED(cuGraphAddDependencies);
    REQUIRE_SUCCESS(check_graph(graph));
    REQUIRE(count == 0 || (from != NULL && to != NULL), CUDA_ERROR_INVALID_VALUE);
    size_t before = graph->edge_count;
    for (size_t i = 0; i < count; i++) {
        struct edge edge = {.from = from[i], .to = to[i]};
        if (data != NULL) {
            memcpy(edge.data, data[i], sizeof edge.data);
        }
        CUresult status = check_edge(graph, &edge);
        if (status == CUDA_SUCCESS) {
            status = push_edge(graph, edge);
        }
        if (status != CUDA_SUCCESS) {
            graph->edge_count = before;
            return status;
        }
    }
    return leave(CALL_cuGraphAddDependencies, CUDA_SUCCESS);
}
