"""The names in the docs: those in backticks must exist in the code, the repository or the command line."""

import ast
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^( *```).*?^\1[^\n]*$", re.M | re.S)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
COMMENT = re.compile(r"//[^\n]*")
# What opens a block of members in Rust. `impl Trait for Type` counts for the type.
OWNER = re.compile(r"\b(?:struct|enum|trait|union)\s+(\w+)|\bimpl\b(?:<[^{;]*?>)?\s+(?:[^{;]*?\bfor\s+)?&?(?:\w+::)*(\w+)")
MEMBER = re.compile(r"\b(?:fn|const|type)\s+(\w+)|^\s*(?:pub(?:\([^)]*\))?\s+)?(\w+)\s*(?:[:,({=]|$)", re.M)

# Names of other libraries and tools, by the page that has them.
FOREIGN = {
    "CONTRIBUTING.md": {"--quick"},
    "coming-from.md": {"re_num_splits"},
    "async.md": {
        *("CancellationToken", "current_thread", "buffered(n)", "try_buffered(n)", "buffer_unordered(n)"),
        *("for_each_concurrent(n, …)", "for_each_concurrent(None, …)", "try_chunks(n)", "peekable()"),
        "select_next_some",
    },
    "buckets.md": {"--xa-s3"},
    "conformance.md": {"--kills 50"},
    "frameworks.md": {"CudaStorage", "wrap_cuda_slice(theirs, …)", "record_stream"},
    "README.md": {"with_format(columns=…)", "--target aarch64-unknown-linux-gnu"},
    "torch.md": {"even_batches", "register_for_checkpointing(loader)", "test_sync"},
}

# A method in backticks without its type, `.shuffle(seed)`, is one of these.
USED = ("Batch", "BatchStream", "Loader", "LoaderBuilder", "Open", "Order", "Report", "Tensor", "Transform")

# Of each kind one that does not exist: a check that passes these would find nothing.
PLANTED = ("Source::new", "--mask-filess", "infeed run DIR --nope", "src/nope.rs", ".shufle(1)", "LoaderBuildr", "is_no_name", "nope(…)")


class Code:
    """What is defined where."""

    def __init__(self, root: Path, infeed: Path):
        listed = subprocess.run(["git", "ls-files"], cwd=root, check=True, capture_output=True, text=True)
        self.files = set(listed.stdout.splitlines())
        self.folders = {str(parent) for file in self.files for parent in Path(file).parents}
        self.members: dict[str, set[str]] = {}
        self.words: set[str] = set()
        self.calls: set[str] = set()
        for file in self.files:
            path = root / file
            # Not prose, and not this file, which has the names of others.
            if file.endswith((".md", ".txt")) or path == Path(__file__) or not path.is_file() or path.stat().st_size > 1 << 20:
                continue
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            if file.endswith(".rs"):
                text = COMMENT.sub("", text)
                self.rust(text)
            elif file.startswith("python/infeed/"):
                self.python(text)
            self.words.update(re.findall(r"[A-Za-z_]\w*", text))
            self.calls.update(re.findall(r"\b(?:fn|def|class|struct|macro_rules!)\s+([A-Za-z_]\w*)", text))
        self.options = options(infeed)

    def rust(self, text: str) -> None:
        for found in OWNER.finditer(text):
            opens = text.find("{", found.end())
            ends = text.find(";", found.end())
            if opens < 0 or 0 <= ends < opens:
                opens = found.end()
            depth, at = 0, opens
            while at < len(text):
                depth += {"{": 1, "}": -1}.get(text[at], 0)
                at += 1
                if depth == 0:
                    break
            names = self.members.setdefault(found[1] or found[2], set())
            names.update(a or b for a, b in MEMBER.findall(text[opens:at].replace("{", "{\n")))

    def python(self, text: str) -> None:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                names = self.members.setdefault(node.name, set())
                for part in node.body:
                    names.update(n for n in (getattr(part, "name", None), getattr(getattr(part, "target", None), "id", None)) if n)

    def wrong(self, span: str) -> str | None:
        """Why a span in backticks names nothing, or None."""
        words = span.split()
        if words[0] == "infeed" or (len(words) <= 2 and words[0].startswith("--")):
            for word in words:
                name = re.match(r"--[a-z][a-z0-9-]*", word)
                if name and name[0] not in self.options:
                    return f"no command has the option {name[0]}"
            return None
        if len(words) == 1 and "/" in span and span.split("/")[0] in self.folders and re.fullmatch(r"[\w./-]+", span):
            path = span.rstrip("/")
            return None if path in self.files or path in self.folders else "no such file or folder"
        for owner, name in re.findall(r"\b([A-Z]\w+)::(\w+)", span):
            if owner in self.members and name not in self.members[owner]:
                return f"{owner} has no {name}"
        if found := re.fullmatch(r"([a-z]\w*)=(\S*)", span):
            return None if found[1] in self.words else f"nothing is called {found[1]}"
        if found := re.match(r"\.([a-z]\w*)\(", span):
            # `next` is `StreamExt`'s.
            return None if found[1] == "next" or any(found[1] in self.members[owner] for owner in USED) else f"no method {found[1]} of {', '.join(USED)}"
        if found := re.fullmatch(r"([A-Za-z_]\w*)\(.*\)\??", span):
            return None if found[1] in self.calls else f"there is no function {found[1]}"
        if re.fullmatch(r"[A-Za-z]\w*", span) and (re.search(r"_|[a-z][A-Z]|^[A-Z][a-z]", span)):
            return None if span in self.words else "no such name in the code"
        return None


def options(infeed: Path) -> set[str]:
    """The options of all commands."""

    def help_of(*words: str) -> str:
        return subprocess.run([infeed, *words], check=True, capture_output=True, text=True).stdout

    listed = help_of("--help").partition("Commands:")[2].partition("Options:")[0]
    commands = re.findall(r"^  ([a-z]+) ", listed, re.M)
    pages = [help_of("--help"), *(help_of(command, "--help") for command in commands if command != "help")]
    return {option for page in pages for option in re.findall(r"--[a-z][a-z0-9-]*", page)}


def check(pages: list[Path], infeed: Path) -> tuple[int, list[str]]:
    """How many names there are, and what is wrong with some."""
    code, count = Code(ROOT, infeed), 0
    wrong = [f"`{name}` was taken for a name" for name in PLANTED if code.wrong(name) is None]
    for page in pages:
        text = FENCE.sub(lambda found: "\n" * found[0].count("\n"), page.read_text(encoding="utf-8"))
        for number, line in enumerate(text.splitlines(), 1):
            # The first column of such a table has the names of another library.
            if page.name == "coming-from.md" and line.startswith("|"):
                line = line.split("|", 2)[2]
            for span in SPAN.findall(line):
                count += 1
                if span not in FOREIGN.get(page.name, ()) and (why := code.wrong(span.strip())):
                    wrong.append(f"{page.relative_to(ROOT)}:{number}: `{span}`: {why}")
    return count, wrong
