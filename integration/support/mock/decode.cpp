// Decoding of the mock nvJPEG: which calls are legal in which order, when inputs are read, and when outputs are written.
//
//   batched (hardware engines)   outputs are overwritten AT THE CALL, whatever their stream still has to do with them, as
//                                Hopper's engines do; the right pixels stand there when the stream gets to the decode.
//                                The bitstreams and all lists must not change until then. One batch at a time for a
//                                handle. Outputs of a batch that failed are written once more behind the next batch.
//                                Parameters for a whole image keep its size, as on an H100 with 13.0: an image that is
//                                smaller is "bad" then, until the region is set anew. Batches of pixels that are no
//                                planes are counted: on an H200 they made a decoder anew whenever the size of images changed.
//   decoupled (hybrid)           Host at the call, into the pinned buffer; TransferToDevice and Device on the stream
//
// A comment in the JPEG gives orders: "mock:parse", "mock:host", "mock:batch" and "mock:once" fail, "mock:unsupported" is
// none for the engines, "mock:skip" is left out by the engines, which report success, and "mock:whole N" fails on the
// engines unless the frame is N rows high.
#include "nvjpeg.h"

#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>

namespace mock {

// Work for a stream, as a closure; `what` must live on.
static int later(void *stream, const char *what, std::function<void()> work) {
    auto *kept = new std::function<void()>(std::move(work));
    auto run = [](void *arg) {
        auto *work = static_cast<std::function<void()> *>(arg);
        (*work)();
        delete work;
    };
    int code = driver().enqueue(stream, what, run, kept);
    if (code) delete kept;
    return code ? EXECUTION_FAILED : SUCCESS;
}

// A decode whose pixels are made at the call and stored when the stream gets there.
static int decode_later(const char *function, const unsigned char *data, size_t len, const Params *params, int format,
                        const Image *to, void *stream) {
    Header header = Header::parse(data, len, true);
    if (header.status) return header.status;
    Pixels pixels;
    auto rgb = std::make_shared<std::vector<unsigned char>>();
    if (int status = decode(data, len, header, params, format, pixels, *rgb)) return status;
    if (int status = check(function, *to, pixels)) return status;
    return later(stream, function, [=, image = *to] {
        if (!check(function, image, pixels)) store(image, pixels, rgb->data(), 0);
    });
}

} // namespace mock

using namespace mock;

extern "C" {

// --- decoupled decoding ---

int nvjpegDecodeJpegHost(void *handle, void *decoder_handle, void *state_handle, void *params_handle, void *stream) {
    ENTER("nvjpegDecodeJpegHost");
    Decoder *decoder = use<Decoder>(function, decoder_handle);
    State *state = use<State>(function, state_handle);
    Params *params = use<Params>(function, params_handle);
    JpegStream *jpeg = use<JpegStream>(function, stream);
    if (!use<Handle>(function, handle) || !decoder || !state || !params || !jpeg) return INVALID_PARAMETER;
    if (!state->pinned || !state->pinned->alive) {
        violate("nvjpegDecodeJpegHost: no pinned buffer is attached to the state");
        return INVALID_PARAMETER;
    }
    if (jpeg->header.status || !jpeg->data) return BAD_JPEG;
    if (!backend_takes(decoder->backend, jpeg->header, params)) return JPEG_NOT_SUPPORTED;
    if (jpeg->header.order == "mock:host") return EXECUTION_FAILED;
    if (state->pinned->pending) violate("nvjpegDecodeJpegHost: an earlier transfer still reads the pinned buffer");
    state->next = State::Host;
    std::vector<unsigned char> rgb;
    if (int status = decode(jpeg->data, jpeg->len, jpeg->header, params, params->format, state->pixels, rgb)) return status;
    if (int status = grow(*state->pinned, rgb.size())) return status;
    memcpy(state->pinned->memory, rgb.data(), rgb.size());
    state->next = State::Transfer;
    return SUCCESS;
}

int nvjpegDecodeJpegTransferToDevice(void *handle, void *decoder, void *state_handle, void *jpeg, void *stream) {
    ENTER("nvjpegDecodeJpegTransferToDevice");
    State *state = use<State>(function, state_handle);
    if (!use<Handle>(function, handle) || !use<Decoder>(function, decoder) || !state ||
        !use<JpegStream>(function, jpeg))
        return INVALID_PARAMETER;
    if (state->next != State::Transfer || !state->device || !state->device->alive) {
        violate(std::string(function) + (state->device ? " without nvjpegDecodeJpegHost before" : " without a device buffer"));
        return INVALID_PARAMETER;
    }
    Buffer *from = state->pinned, *to = state->device;
    size_t len = state->pixels.bytes();
    // It may have to grow, which frees it under the work on it.
    if (to->pending) violate(std::string(function) + ": queued work still uses the device buffer");
    if (int status = grow(*to, len)) return status;
    from->pending++;
    to->pending++;
    state->next = State::Device;
    return later(stream, function, [=] {
        memcpy(to->memory, from->memory, len);
        from->pending--;
        to->pending--;
    });
}

int nvjpegDecodeJpegDevice(void *handle, void *decoder, void *state_handle, Image *destination, void *stream) {
    ENTER("nvjpegDecodeJpegDevice");
    State *state = use<State>(function, state_handle);
    if (!use<Handle>(function, handle) || !use<Decoder>(function, decoder) || !state || !destination)
        return INVALID_PARAMETER;
    if (state->next != State::Device) {
        violate("nvjpegDecodeJpegDevice without nvjpegDecodeJpegTransferToDevice before");
        return INVALID_PARAMETER;
    }
    Pixels pixels = state->pixels;
    if (int status = check(function, *destination, pixels)) return status;
    Buffer *from = state->device;
    from->pending++;
    state->in_flight++;
    state->next = State::Host;
    return later(stream, function, [=, image = *destination] {
        if (!check(function, image, pixels)) store(image, pixels, static_cast<unsigned char *>(from->memory), 0);
        from->pending--;
        state->in_flight--;
    });
}

// --- decoding in one call ---

int nvjpegDecodeJpeg(void *handle, void *decoder_handle, void *state, void *stream, Image *destination, void *params,
                     void *cuda_stream) {
    ENTER("nvjpegDecodeJpeg");
    Decoder *decoder = use<Decoder>(function, decoder_handle);
    JpegStream *jpeg = use<JpegStream>(function, stream);
    Params *wanted = use<Params>(function, params);
    if (!use<Handle>(function, handle) || !decoder || !use<State>(function, state) || !jpeg || !wanted || !destination)
        return INVALID_PARAMETER;
    if (!backend_takes(decoder->backend, jpeg->header, wanted)) return JPEG_NOT_SUPPORTED;
    return decode_later(function, jpeg->data, jpeg->len, wanted, wanted->format, destination, cuda_stream);
}

int nvjpegDecode(void *handle, void *state, const unsigned char *data, size_t len, int format, Image *destination,
                 void *stream) {
    ENTER("nvjpegDecode");
    if (!use<Handle>(function, handle) || !use<State>(function, state) || !destination) return INVALID_PARAMETER;
    return decode_later(function, data, len, nullptr, format, destination, stream);
}

// --- batched decoding ---

static int batch_supported(const char *function, void *object, void *stream_handle, int *not_supported) {
    Handle *handle = use<Handle>(function, object);
    JpegStream *stream = use<JpegStream>(function, stream_handle);
    if (!handle || !stream || !not_supported) return INVALID_PARAMETER;
    *not_supported = !(handle->hardware() && hardware_takes(stream->header));
    return SUCCESS;
}

int nvjpegDecodeBatchedSupported(void *handle, void *stream, int *not_supported) {
    ENTER("nvjpegDecodeBatchedSupported");
    return batch_supported(function, handle, stream, not_supported);
}

int nvjpegDecodeBatchedSupportedEx(void *handle, void *stream, void *params, int *not_supported) {
    ENTER("nvjpegDecodeBatchedSupportedEx");
    if (!use<Params>(function, params)) return INVALID_PARAMETER;
    return batch_supported(function, handle, stream, not_supported);
}

int nvjpegDecodeBatchedInitialize(void *handle, void *state_handle, int batch, int, int format) {
    ENTER("nvjpegDecodeBatchedInitialize");
    State *state = use<State>(function, state_handle);
    Handle *parent = use<Handle>(function, handle);
    if (!parent || !state || batch < 1) return INVALID_PARAMETER;
    if (state->in_flight) violate("nvjpegDecodeBatchedInitialize: a decode with the state is queued");
    else if (parent->in_flight) violate("nvjpegDecodeBatchedInitialize: a batch of the handle is queued");
    state->initialised = true;
    state->batch = batch;
    state->format = format;
    return SUCCESS;
}

int nvjpegDecodeBatchedPreAllocate(void *handle, void *state, int batch, int width, int height, int, int) {
    ENTER("nvjpegDecodeBatchedPreAllocate");
    if (!use<Handle>(function, handle) || !use<State>(function, state)) return INVALID_PARAMETER;
    return batch > 0 && width > 0 && height > 0 ? SUCCESS : INVALID_PARAMETER;
}

// Whether this order was met before: "mock:once" fails one batch only.
static bool seen(const std::string &order) {
    static std::mutex *lock = new std::mutex;
    static std::set<std::string> *orders = new std::set<std::string>;
    std::lock_guard<std::mutex> guard(*lock);
    return !orders->insert(order).second;
}

// Engines that failed may go on for a while: what they still write, behind the next batch.
struct Late {
    std::mutex lock;
    std::vector<std::pair<Image, Pixels>> outputs;
};
static Late &late() {
    static Late *late = new Late;
    return *late;
}

static void leave_for_later(const Image &image, const Pixels &pixels) {
    std::lock_guard<std::mutex> guard(late().lock);
    late().outputs.emplace_back(image, pixels);
}

static void write_what_is_late(const char *function) {
    std::vector<std::pair<Image, Pixels>> outputs;
    {
        std::lock_guard<std::mutex> guard(late().lock);
        outputs.swap(late().outputs);
    }
    for (const auto &output : outputs) {
        std::vector<unsigned char> gray(output.second.bytes(), 99);
        if (!driver().is_live(output.first.channel[0])) continue;
        if (!check(function, output.first, output.second)) store(output.first, output.second, gray.data(), 0);
    }
}

// Whether the engines refuse a frame that was cut: "mock:whole N".
static bool refuses_cut(const Header &header) {
    return header.order.rfind("mock:whole ", 0) == 0 && unsigned(atoi(header.order.c_str() + 11)) != header.height;
}

static int decode_batch(const char *function, void *handle, void *state_handle, const unsigned char *const *data,
                        const size_t *lengths, const Image *destinations, void *const *params, void *stream) {
    State *state = use<State>(function, state_handle);
    Handle *parent = use<Handle>(function, handle);
    if (!parent || !state || !data || !lengths || !destinations) return INVALID_PARAMETER;
    if (!state->initialised) {
        violate(std::string(function) + " without nvjpegDecodeBatchedInitialize before (each failure asks for it anew)");
        return NOT_INITIALIZED;
    }
    if (state->in_flight) violate(std::string(function) + ": an earlier decode with the state is queued");
    if (parent->hardware() && state->format != YUV) driver().add("engine_pixels", 1);
    struct One {
        const unsigned char *data;
        std::vector<unsigned char> bytes, rgb;
        Image image;
        Pixels pixels;
        bool skipped;
    };
    auto all = std::make_shared<std::vector<One>>();
    for (int i = 0; i < state->batch; ++i) {
        if (!data[i] || !lengths[i]) return INVALID_PARAMETER;
        Params *wanted = params && params[i] ? use<Params>(function, params[i]) : nullptr;
        Header header = Header::parse(data[i], lengths[i], true);
        if (wanted && parent->hardware()) {
            if (wanted->width < 0) wanted->width = int(header.width), wanted->height = int(header.height);
            if (unsigned(wanted->width) > header.width || unsigned(wanted->height) > header.height) return BAD_JPEG;
        }
        One one{data[i], {data[i], data[i] + lengths[i]}, {}, destinations[i], {}, header.order == "mock:skip"};
        bool ordered = header.order == "mock:batch" || (header.order.rfind("mock:once", 0) == 0 && !seen(header.order));
        ordered = ordered || refuses_cut(header);
        int status = header.status || ordered || (parent->hardware() && !hardware_takes(header)) ? EXECUTION_FAILED : SUCCESS;
        if (!status) status = decode(data[i], lengths[i], header, wanted, state->format, one.pixels, one.rgb);
        if (!status) status = check(function, one.image, one.pixels);
        if (status) {
            // One image takes its batch with it, whose outputs are partly written.
            state->initialised = false;
            if (parent->hardware())
                for (const One &written : *all) leave_for_later(written.image, written.pixels);
            return status == INVALID_PARAMETER || status == JPEG_NOT_SUPPORTED ? status : int(EXECUTION_FAILED);
        }
        if (parent->hardware() && !one.skipped) store(one.image, one.pixels, one.rgb.data(), 0xff);
        all->push_back(std::move(one));
    }
    state->in_flight++;
    parent->in_flight++;
    for (const One &one : *all) driver().add("decoded_rows", one.pixels.height);
    auto list = [count = size_t(state->batch)](const auto *list) {
        return list ? std::string(reinterpret_cast<const char *>(list), count * sizeof *list) : std::string();
    };
    std::string lists = list(data) + list(lengths) + list(destinations) + list(params);
    return later(stream, function, [=] {
        if (list(data) + list(lengths) + list(destinations) + list(params) != lists)
            violate(std::string(function) + ": a list was changed before its decode had run");
        for (const One &one : *all) {
            if (memcmp(one.data, one.bytes.data(), one.bytes.size()))
                violate(std::string(function) + ": a bitstream was changed before its decode had run");
            if (!one.skipped && !check(function, one.image, one.pixels)) store(one.image, one.pixels, one.rgb.data(), 0);
        }
        write_what_is_late(function);
        state->in_flight--;
        parent->in_flight--;
    });
}

int nvjpegDecodeBatched(void *handle, void *state, const unsigned char *const *data, const size_t *lengths,
                        const Image *destinations, void *stream) {
    ENTER("nvjpegDecodeBatched");
    return decode_batch(function, handle, state, data, lengths, destinations, nullptr, stream);
}

int nvjpegDecodeBatchedEx(void *handle, void *state, const unsigned char *const *data, const size_t *lengths,
                          const Image *destinations, void *const *params, void *stream) {
    ENTER("nvjpegDecodeBatchedEx");
    return decode_batch(function, handle, state, data, lengths, destinations, params, stream);
}

} // extern "C"
