class readers:
    @staticmethod
    def file(*, file_root, random_shuffle, initial_fill):
        return "files", "labels"


class decoders:
    @staticmethod
    def image_random_crop(files, *, device, random_area, random_aspect_ratio, num_attempts, hw_decoder_load,
                          preallocate_width_hint, preallocate_height_hint):
        assert files == "files" and device == "mixed" and 0 <= hw_decoder_load <= 1
        return "images"


class random:
    @staticmethod
    def coin_flip():
        return "coin"


def resize(images, *, size, interp_type, antialias):
    assert images == "images" and size == (224, 224)
    return "resized"


def crop_mirror_normalize(images, *, mirror, dtype, output_layout, mean, std):
    assert (images, mirror, output_layout) == ("resized", "coin", "CHW") and len(mean) == len(std) == 3
    return "rows"
