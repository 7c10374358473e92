# make demo   certify digits with the network that ships with the package; writes boundlab-report/
# make test   style, types and tests
# make gallery   runs the notebooks of docs/gallery/ again, and draws docs/pictures/
# make benchmarks   cost, growth and memory; writes docs/benchmarks.md (half an hour)
# make docs   the documentation: pages of operators, and the site in docs/_build/html
# make data   MNIST, Fashion-MNIST and CIFAR-10 into data/; make data DATA=DIRECTORY puts them elsewhere
# make matrix   the tests on several versions of torch and Python, in environments in matrix/ (hours)
# make package   wheel and sdist into dist/, and the wheel used outside of the repository
# make house   how the code reads, in numbers, and where it misses its aims
# make fuzz   tens of thousands of random graphs (about an hour)
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
DOCS_READY := .venv/docs-ready
SITE := docs/_build/html
DATA ?= data
MATRIX ?= matrix
VERSIONS ?=

.PHONY: demo test lint matrix package house fuzz docs gallery benchmarks data clean

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/boundlab demo

test: lint
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python scripts/house.py --check

matrix: $(READY)
	$(BIN)/python scripts/matrix.py $(MATRIX) $(VERSIONS)

package:
	rm -rf dist
	$(PYTHON) scripts/package.py dist

house: $(READY)
	$(BIN)/python scripts/house.py --places

fuzz: $(READY)
	$(BIN)/python -m tests.fuzz

$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	touch $@

docs: $(DOCS_READY)
	$(BIN)/boundlab ops --markdown > docs/operators.md
	$(BIN)/boundlab ops --onnx --markdown > docs/onnx-operators.md
	rm -rf $(SITE)
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --nitpicky --quiet -b html docs $(SITE)
	$(BIN)/python scripts/check_site.py $(SITE)

gallery: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	$(BIN)/python scripts/draw_pictures.py
	$(BIN)/python scripts/make_gallery.py

benchmarks: $(READY)
	$(BIN)/python -m benchmarks.verification
	$(BIN)/python -m benchmarks.growth
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.page

data: $(READY)
	$(BIN)/python -m scripts.fetch_data $(DATA)

clean:
	rm -rf .venv boundlab-report docs/_build
