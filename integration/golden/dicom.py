"""Small DICOM files and what pydicom and SimpleITK make of them: python3 integration/golden/dicom.py > integration/golden/dicom.json

Needs pydicom, numpy, SimpleITK, pylibjpeg with pylibjpeg-libjpeg, and Pillow. Each case is a series; its files come in the order of
their names, which is not that of their places. `voxels` are pydicom's values with slope and intercept, as f32, in the order of
places; spacing and origin are SimpleITK's, reversed (z, y, x), where it reads the series.
"""

import base64
import importlib.metadata
import io
import json
import os
import tempfile
import zlib

import numpy as np
import pydicom
import SimpleITK as sitk
from PIL import Image
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.sequence import Sequence
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    JPEGLossless,
    JPEGLosslessSV1,
    JPEGLSLossless,
    RLELossless,
)

ROWS, COLUMNS, DEPTH = 11, 14, 5
CT = "1.2.840.10008.5.1.4.1.1.2"
ENHANCED = "1.2.840.10008.5.1.4.1.1.2.1"


def lossless(pixels, bits, predictor=1, restart=0, shift=0):
    """JPEG's lossless process, of which no encoder is at hand: one table of 17 codes of 5 bits."""
    rows, columns, channels = pixels.shape
    pixels = pixels.astype(np.int64) >> shift
    out = []
    bit_text = []

    def flush():
        text = "".join(bit_text)
        bit_text.clear()
        text += "1" * (-len(text) % 8)
        for i in range(0, len(text), 8):
            byte = int(text[i : i + 8], 2)
            out.append(byte)
            if byte == 0xFF:
                out.append(0)

    first_row, left, number = 0, restart, 0
    for y in range(rows):
        for x in range(columns):
            fresh = x == 0 and y == 0
            if restart:
                if left == 0:
                    flush()
                    out.extend([0xFF, 0xD0 + number % 8])
                    number, left, first_row, fresh = number + 1, restart, y, True
                left -= 1
            for c in range(channels):
                at = lambda dy, dx: int(pixels[y - dy, x - dx, c])
                if fresh:
                    guess = 1 << (bits - shift - 1)
                elif y == first_row:
                    guess = at(0, 1)
                elif x == 0:
                    guess = at(1, 0)
                else:
                    a, b, d = at(0, 1), at(1, 0), at(1, 1)
                    guess = [a, b, d, a + b - d, a + ((b - d) >> 1), b + ((a - d) >> 1), (a + b) >> 1][predictor - 1]
                difference = (at(0, 0) - guess) & 0xFFFF
                difference -= 65536 if difference > 32768 else 0
                size = abs(difference).bit_length()
                bit_text.append(f"{size:05b}")
                if 0 < size < 16:
                    bit_text.append(f"{difference if difference > 0 else difference + (1 << size) - 1:0{size}b}")
    flush()
    segment = lambda marker, body: bytes([0xFF, marker]) + (len(body) + 2).to_bytes(2, "big") + body
    frame = bytes([bits]) + rows.to_bytes(2, "big") + columns.to_bytes(2, "big") + bytes([channels])
    frame += b"".join(bytes([c + 1, 0x11, 0]) for c in range(channels))
    scan = bytes([channels]) + b"".join(bytes([c + 1, 0]) for c in range(channels)) + bytes([predictor, 0, shift])
    table = b"\0" + bytes([0, 0, 0, 0, 17] + [0] * 11) + bytes(range(17))
    head = b"\xff\xd8" + segment(0xC3, frame) + segment(0xC4, table)
    head += segment(0xDD, restart.to_bytes(2, "big")) if restart else b""
    return head + segment(0xDA, scan) + bytes(out) + b"\xff\xd9"


def values(depth=DEPTH, low=0, high=4096, channels=1):
    z, y, x, c = np.mgrid[0:depth, 0:ROWS, 0:COLUMNS, 0:channels]
    wave = np.sin(x * 0.6 + z) * np.cos(y * 0.5 - z * 0.3 + c) * 0.5 + 0.5
    noise = np.random.default_rng(7).integers(0, 9, wave.shape) / 100
    return np.clip(low + (wave * 0.9 + noise) * (high - low), low, high - 1).astype(np.int64)


def base(series, syntax, dtype, bits, sop=CT, photometric="MONOCHROME2", channels=1):
    form = {"is_implicit_VR": syntax == ImplicitVRLittleEndian, "is_little_endian": syntax != ExplicitVRBigEndian}
    ds = FileDataset(None, {}, preamble=b"\0" * 128, file_meta=FileMetaDataset(), **form)
    ds.file_meta.TransferSyntaxUID = syntax
    ds.file_meta.MediaStorageSOPClassUID = ds.SOPClassUID = sop
    ds.Modality = "CT"
    ds.PatientName, ds.PatientID = "Made^Up", "made up"
    ds.SeriesInstanceUID = f"1.2.3.{series}"
    ds.StudyInstanceUID = ds.FrameOfReferenceUID = "1.2.3"
    ds.Rows, ds.Columns, ds.SamplesPerPixel, ds.PhotometricInterpretation = ROWS, COLUMNS, channels, photometric
    if channels > 1:
        ds.PlanarConfiguration = 0
    size = np.dtype(dtype).itemsize
    ds.BitsAllocated, ds.BitsStored, ds.HighBit = size * 8, bits, bits - 1
    ds.PixelRepresentation = int(np.dtype(dtype).kind == "i")
    # What is skipped: a sequence without a length in a sequence, and text.
    inner = Dataset()
    inner.CodeValue = "1"
    outer = Dataset()
    outer.PurposeOfReferenceCodeSequence = Sequence([inner])
    outer["PurposeOfReferenceCodeSequence"].is_undefined_length = True
    ds.SourceImageSequence = Sequence([outer])
    ds["SourceImageSequence"].is_undefined_length = True
    return ds


def finish(ds, number):
    ds.SOPInstanceUID = ds.file_meta.MediaStorageSOPInstanceUID = f"{ds.SeriesInstanceUID}.{number}"
    file = io.BytesIO()
    ds.save_as(file, enforce_file_format=True)
    return file.getvalue()


def stored(pixels, dtype, syntax):
    return pixels.astype(np.dtype(dtype).newbyteorder(">" if syntax == ExplicitVRBigEndian else "<")).tobytes()


def native(pixels, dtype):
    data = pixels.astype(dtype).tobytes()
    return data + b"\0" * (len(data) % 2)


CASES = []


def case(name, files, exact=True, itk=True):
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for i, file in enumerate(files):
            paths.append(os.path.join(folder, f"{i:03}.dcm"))
            with open(paths[-1], "wb") as to:
                to.write(file)
        slices = []
        for path in paths:
            ds = pydicom.dcmread(path)
            pixels = ds.pixel_array.astype(np.float64)
            pixels = pixels.reshape(int(ds.get("NumberOfFrames", 1)), ds.Rows, ds.Columns, ds.SamplesPerPixel)
            for i, frame in enumerate(pixels):
                per = ds.PerFrameFunctionalGroupsSequence[i] if "PerFrameFunctionalGroupsSequence" in ds else None
                shared = ds.SharedFunctionalGroupsSequence[0] if per is not None else None
                slope, intercept = float(ds.get("RescaleSlope", 1)), float(ds.get("RescaleIntercept", 0))
                position, orientation = ds.get("ImagePositionPatient"), ds.get("ImageOrientationPatient")
                if per is not None:
                    position = per.PlanePositionSequence[0].ImagePositionPatient
                    orientation = shared.PlaneOrientationSequence[0].ImageOrientationPatient
                    rescale = per.PixelValueTransformationSequence[0]
                    slope, intercept = float(rescale.RescaleSlope), float(rescale.RescaleIntercept)
                depth = float(ds.get("InstanceNumber", 0)) + i
                if position is not None and (per is not None or len(pixels) == 1):
                    depth = float(np.dot(np.array(position, float), np.cross(*np.array(orientation, float).reshape(2, 3))))
                slices.append((depth, frame * slope + intercept))
        slices.sort(key=lambda one: one[0])
        voxels = np.stack([frame for _, frame in slices]).transpose(3, 0, 1, 2).astype("<f4")
        found = {"name": name, "exact": exact, "shape": list(voxels.shape), "crc": zlib.crc32(voxels.tobytes())}
        if not exact:
            found["voxels"] = base64.b64encode(zlib.compress(voxels.astype("<i2").tobytes())).decode()
        if itk:
            if len(paths) > 1:
                reader = sitk.ImageSeriesReader()
                reader.SetFileNames(sitk.ImageSeriesReader.GetGDCMSeriesFileNames(folder))
                image = reader.Execute()
            else:
                image = sitk.ReadImage(paths[0])
            found["spacing"], found["origin"] = list(image.GetSpacing())[::-1], list(image.GetOrigin())[::-1]
            if exact:
                ours = sitk.GetArrayFromImage(image).astype("<f4").reshape(voxels.shape[1:] + voxels.shape[:1]).transpose(3, 0, 1, 2)
                assert np.allclose(ours, voxels), name
    found["files"] = [base64.b64encode(zlib.compress(file, 9)).decode() for file in files]
    CASES.append(found)


AXIAL = [1, 0, 0, 0, 1, 0]


def placed(ds, z, orientation=AXIAL, gap=2.5, start=(-30.0, 12.5, 100.25)):
    normal = np.cross(*np.array(orientation, float).reshape(2, 3))
    ds.ImagePositionPatient = [f"{n:.6f}" for n in np.array(start) + normal * gap * z]
    ds.ImageOrientationPatient = [f"{n:.8f}" for n in orientation]
    ds.PixelSpacing = ["0.75", "1.5"]
    ds.SliceThickness = "5"


def series(number, syntax, dtype="<i2", bits=12, low=-1024, high=1024, orientation=AXIAL, encode=None, pet=False, junk=0, channels=1):
    pixels = values(low=low, high=high, channels=channels)
    files = []
    # Neither names nor numbers are in the order of places.
    for z in [3, 0, 4, 1, 2]:
        ds = base(number, syntax, dtype, bits, channels=channels, photometric="RGB" if channels == 3 else "MONOCHROME2")
        placed(ds, z, orientation)
        ds.InstanceNumber = 50 - z
        ds.RescaleSlope, ds.RescaleIntercept = (f"{0.37 + z * 0.011:.4f}", "0") if pet else ("1", "-24")
        if channels == 3:
            del ds.RescaleSlope, ds.RescaleIntercept
        if encode is None:
            with_junk = pixels[z] & ((1 << bits) - 1) | junk if junk else pixels[z]
            ds.PixelData = stored(with_junk, "<u2" if junk else dtype, syntax)
            ds["PixelData"].VR = "OW" if np.dtype(dtype).itemsize > 1 else "OB"
            if len(ds.PixelData) % 2:
                ds.PixelData += b"\0"
        elif encode == "rle":
            ds.PixelData = native(pixels[z], dtype)
            ds.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
            ds.compress(RLELossless, generate_instance_uid=False)
        else:
            ds.PixelData = encapsulate([encode(pixels[z], z)])
            ds["PixelData"].VR = "OB"
        files.append(finish(ds, z))
    return files


def enhanced(number, syntax, encode=None):
    pixels = values(low=-500, high=1500)
    ds = base(number, syntax, "<i2", 16, ENHANCED)
    ds.NumberOfFrames = DEPTH
    shared = Dataset()
    orientation, measures = Dataset(), Dataset()
    orientation.ImageOrientationPatient = AXIAL
    measures.PixelSpacing, measures.SliceThickness, measures.SpacingBetweenSlices = ["0.75", "1.5"], "5", "2.5"
    shared.PlaneOrientationSequence, shared.PixelMeasuresSequence = Sequence([orientation]), Sequence([measures])
    ds.SharedFunctionalGroupsSequence = Sequence([shared])
    order = [4, 2, 0, 3, 1] if encode is None else range(DEPTH)
    frames = []
    for z in order:
        per, place, rescale = Dataset(), Dataset(), Dataset()
        place.ImagePositionPatient = ["-30", "12.5", f"{100.25 + 2.5 * z}"]
        rescale.RescaleSlope, rescale.RescaleIntercept, rescale.RescaleType = "2", "-7", "HU"
        per.PlanePositionSequence, per.PixelValueTransformationSequence = Sequence([place]), Sequence([rescale])
        frames.append(per)
    ds.PerFrameFunctionalGroupsSequence = Sequence(frames)
    if encode:
        ds.PixelData = encapsulate([encode(pixels[z], z) for z in order], has_bot=True)
        ds["PixelData"].VR = "OB"
    else:
        ds.PixelData = pixels[list(order)].astype("<i2").tobytes()
        ds["PixelData"].VR = "OW"
    return [finish(ds, 1)]


def baseline(pixels, z):
    file = io.BytesIO()
    Image.fromarray(pixels[..., 0].astype(np.uint8)).save(file, format="JPEG", quality=95)
    return file.getvalue()


def plain(number):
    ds = base(number, ExplicitVRLittleEndian, "<u1", 8, "1.2.840.10008.5.1.4.1.1.7.2")
    ds.NumberOfFrames = 4
    ds.InstanceNumber = 1
    data = values(depth=4, high=256).astype(np.uint8).tobytes()
    ds.PixelData = data + b"\0" * (len(data) % 2)
    ds["PixelData"].VR = "OB"
    return [finish(ds, 1)]


def main():
    c, s = np.cos(0.4), np.sin(0.4)
    oblique = [c, s, 0, -s * 0.8, c * 0.8, 0.6]
    case("implicit", series(1, ImplicitVRLittleEndian))
    case("explicit", series(2, ExplicitVRLittleEndian, bits=16))
    case("big endian", series(3, ExplicitVRBigEndian), itk=False)
    case("deflated", series(4, DeflatedExplicitVRLittleEndian))
    case("unsigned", series(5, ExplicitVRLittleEndian, "<u2", 12, 0, 4096))
    case("overlay bits", series(6, ExplicitVRLittleEndian, "<i2", 12, junk=0x6000), itk=False)
    case("oblique", series(7, ExplicitVRLittleEndian, orientation=oblique))
    case("pet", series(8, ExplicitVRLittleEndian, "<u2", 16, 0, 30000, pet=True), itk=False)
    case("bytes", series(9, ExplicitVRLittleEndian, "<u1", 8, 0, 256))
    case("rgb", series(10, ExplicitVRLittleEndian, "<u1", 8, 0, 256, channels=3), itk=False)
    case("rle", series(11, RLELossless, "<i2", 16, encode="rle"))
    case("rle rgb", series(12, RLELossless, "<u1", 8, 0, 256, encode="rle", channels=3), itk=False)
    sv1 = lambda pixels, z: lossless(pixels & 0xFFFF, 16)
    case("lossless", series(13, JPEGLosslessSV1, "<i2", 16, encode=sv1))
    other = lambda pixels, z: lossless(pixels, 12, predictor=z + 2)
    case("lossless of other predictors", series(14, JPEGLossless, "<u2", 12, 0, 4096, encode=other))
    lines = lambda pixels, z: lossless(pixels, 12, predictor=4, restart=COLUMNS * 3)
    case("lossless with restarts", series(15, JPEGLossless, "<u2", 12, 0, 4096, encode=lines))
    case("lossless of bytes", series(16, JPEGLosslessSV1, "<u1", 8, 0, 256, encode=lambda pixels, z: lossless(pixels, 8)))
    case("baseline", series(17, JPEGBaseline8Bit, "<u1", 8, 0, 256, encode=baseline), exact=False, itk=False)
    case("enhanced", enhanced(18, ExplicitVRLittleEndian), itk=False)
    case("enhanced lossless", enhanced(19, JPEGLosslessSV1, encode=sv1), itk=False)
    case("plain frames", plain(20), itk=False)
    refused = {}
    for name, syntax in [("JPEG 2000", JPEG2000Lossless), ("JPEG-LS", JPEGLSLossless)]:
        refused[name] = base64.b64encode(zlib.compress(series(30, syntax, encode=lambda pixels, z: b"\xff\x4f\xff\x51")[0], 9)).decode()
    made = {name: importlib.metadata.version(name) for name in ["pydicom", "numpy", "SimpleITK", "pylibjpeg-libjpeg", "pillow"]}
    print(json.dumps({"made_by": made, "cases": CASES, "refused": refused}, indent=0))


if __name__ == "__main__":
    main()
