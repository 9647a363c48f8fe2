// A method that counts its calls by object and thread, and asks now and then for a closer look.
//
// What is added to a call is one search in a table; arguments are passed on as they came, nothing
// is packed or copied. The GIL guards the table.
#pragma once

#include <Python.h>
#include <structmember.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace recording {

struct Count {
    unsigned long thread;
    std::uint64_t calls;
    std::uint64_t seen;     // calls up to the last look
    std::uint64_t look_at;  // the call before which to look again
    bool has_returned;      // whether a call has ended without an exception
};

// By address of the object, which is not kept alive: `forget` when it goes.
using Counts = std::unordered_map<PyObject*, std::vector<Count>>;

struct CountedMethod {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject* original;
    PyObject* look;  // (object, arguments, named, calls, since, has_returned) -> look_at, or NULL
    Counts* counts;
};

inline Count* find(Counts* counts, PyObject* object, unsigned long thread) {
    const auto found = counts->find(object);
    if (found == counts->end()) return nullptr;
    for (Count& count : found->second) {
        if (count.thread == thread) return &count;
    }
    return nullptr;
}

// Returns 0, or -1 with an exception that has to end the call: a KeyboardInterrupt, say.
inline int take_a_look(
    CountedMethod* self, PyObject* const* arguments, Py_ssize_t number, PyObject* names, Count now
) {
    PyObject* positional = PyTuple_New(number - 1);
    PyObject* named = PyDict_New();
    PyObject* result = nullptr;
    if (positional && named) {
        for (Py_ssize_t at = 1; at < number; ++at) {
            Py_INCREF(arguments[at]);
            PyTuple_SET_ITEM(positional, at - 1, arguments[at]);
        }
        int failed = 0;
        const Py_ssize_t pairs = names ? PyTuple_GET_SIZE(names) : 0;
        for (Py_ssize_t at = 0; at < pairs && !failed; ++at) {
            failed = PyDict_SetItem(named, PyTuple_GET_ITEM(names, at), arguments[number + at]);
        }
        if (!failed) {
            PyObject* const look = self->look;
            Py_INCREF(look);  // the look may stop the recording
            result = PyObject_CallFunction(
                look, "OOOKKO", arguments[0], positional, named,
                static_cast<unsigned long long>(now.calls),
                static_cast<unsigned long long>(now.calls - now.seen),
                now.has_returned ? Py_True : Py_False
            );
            Py_DECREF(look);
        }
    }
    Py_XDECREF(positional);
    Py_XDECREF(named);
    std::uint64_t look_at = 0;
    if (result) {
        look_at = PyLong_AsUnsignedLongLong(result);
        Py_DECREF(result);
    }
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_Exception)) return -1;
        PyErr_WriteUnraisable(self->original);
        look_at = 2 * now.calls;
    }
    // Searched anew: other threads have run meanwhile.
    if (Count* const count = find(self->counts, arguments[0], now.thread)) {
        count->seen = now.calls;
        count->look_at = look_at > now.calls ? look_at : now.calls + 1;
    }
    return 0;
}

inline PyObject* call(PyObject* callable, PyObject* const* arguments, size_t flags, PyObject* names) {
    auto* const self = reinterpret_cast<CountedMethod*>(callable);
    const Py_ssize_t number = PyVectorcall_NARGS(flags);
    unsigned long thread = 0;
    bool is_unproven = false;
    if (self->look && number > 0) {
        thread = PyThread_get_thread_ident();
        Count* count = find(self->counts, arguments[0], thread);
        if (!count) {
            try {
                auto& threads = (*self->counts)[arguments[0]];
                threads.push_back(Count{thread, 0, 0, 1, false});
                count = &threads.back();
            } catch (const std::bad_alloc&) {
                return PyErr_NoMemory();
            }
        }
        if (++count->calls >= count->look_at) {
            is_unproven = !count->has_returned;
            if (take_a_look(self, arguments, number, names, *count) < 0) return nullptr;
        }
    }
    PyObject* const result = PyObject_Vectorcall(self->original, arguments, flags, names);
    if (is_unproven && result) {
        if (Count* const count = find(self->counts, arguments[0], thread)) {
            count->has_returned = true;
        }
    }
    return result;
}

inline PyObject* bind(PyObject* self, PyObject* object, PyObject*) {
    if (!object || object == Py_None) {
        Py_INCREF(self);
        return self;
    }
    return PyMethod_New(self, object);
}

// Name, module and whatever else is asked for are those of the original.
inline PyObject* attribute(PyObject* object, PyObject* name) {
    auto* const self = reinterpret_cast<CountedMethod*>(object);
    if (!self->original) return PyObject_GenericGetAttr(object, name);  // in the garbage
    if (PyUnicode_CompareWithASCIIString(name, "__wrapped__") == 0) {
        Py_INCREF(self->original);
        return self->original;
    }
    if (PyUnicode_CompareWithASCIIString(name, "__class__") == 0) {
        return PyObject_GenericGetAttr(object, name);
    }
    return PyObject_GetAttr(self->original, name);
}

inline int traverse(PyObject* object, visitproc visit, void* arg) {
    auto* const self = reinterpret_cast<CountedMethod*>(object);
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->original);
    Py_VISIT(self->look);
    return 0;
}

inline int clear(PyObject* object) {
    auto* const self = reinterpret_cast<CountedMethod*>(object);
    Py_CLEAR(self->look);
    Py_CLEAR(self->original);
    return 0;
}

inline void dealloc(PyObject* object) {
    auto* const self = reinterpret_cast<CountedMethod*>(object);
    PyTypeObject* const type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    clear(object);
    delete self->counts;
    type->tp_free(object);
    Py_DECREF(type);
}

inline PyObject* make_type() {
    static PyMemberDef members[] = {
        {"__vectorcalloffset__", T_PYSSIZET, offsetof(CountedMethod, vectorcall), READONLY, nullptr},
        {nullptr, 0, 0, 0, nullptr},
    };
    static PyType_Slot slots[] = {
        {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
        {Py_tp_descr_get, reinterpret_cast<void*>(bind)},
        {Py_tp_getattro, reinterpret_cast<void*>(attribute)},
        {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
        {Py_tp_clear, reinterpret_cast<void*>(clear)},
        {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
        {Py_tp_members, members},
        {0, nullptr},
    };
    // METHOD_DESCRIPTOR: `graph.execute(...)` makes no bound method.
    static PyType_Spec spec = {
        "cudnn_bindgen.frontend.recording.counting.CountedMethod", sizeof(CountedMethod), 0,
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
            Py_TPFLAGS_METHOD_DESCRIPTOR,
        slots,
    };
    return PyType_FromSpec(&spec);
}

inline PyObject* make(PyObject* type, PyObject* original, PyObject* look) {
    auto* const cls = reinterpret_cast<PyTypeObject*>(type);
    PyObject* const object = cls->tp_alloc(cls, 0);
    if (!object) return nullptr;
    auto* const self = reinterpret_cast<CountedMethod*>(object);
    self->vectorcall = call;
    Py_INCREF(original);
    self->original = original;
    Py_INCREF(look);
    self->look = look;
    self->counts = new Counts();
    return object;
}

inline Counts& counts_of(PyObject* object) {
    return *reinterpret_cast<CountedMethod*>(object)->counts;
}

// What the Python side asks of the table, by the address of an object.

inline std::vector<Count> read(PyObject* method, std::size_t address) {
    const auto found = counts_of(method).find(reinterpret_cast<PyObject*>(address));
    return found == counts_of(method).end() ? std::vector<Count>() : found->second;
}

inline void forget(PyObject* method, std::size_t address) {
    counts_of(method).erase(reinterpret_cast<PyObject*>(address));
}

inline void forget_all(PyObject* method) { counts_of(method).clear(); }

inline void look_again(PyObject* method, std::size_t address) {
    const auto found = counts_of(method).find(reinterpret_cast<PyObject*>(address));
    if (found == counts_of(method).end()) return;
    for (Count& count : found->second) count.look_at = 0;
}

inline void stop(PyObject* method) { Py_CLEAR(reinterpret_cast<CountedMethod*>(method)->look); }

}  // namespace recording
