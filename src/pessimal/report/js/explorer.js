// The token explorer: search, filters and the table, linked with the pinned tokens and the scatter.

class Explorer {
  constructor(box, index) {
    this.index = index;
    this.vocabularies = index.vocabularies.map((entry) => new Vocabulary(entry, index));
    this.vocabulary = this.vocabularies[0];
    this.prompt = this.promptOf(this.vocabulary);
    this.query = {
      typed: '',
      way: 'contains',
      matchCase: false,
      kind: 'all',
      survives: 'all',
      selection: null,
    };
    this.sort = { by: 'reward', column: this.vocabulary.of(this.prompt)[0], descending: false };
    this.rows = new Uint32Array(0);
    this.controls = element('div', { class: 'controls', role: 'search' });
    this.status = element('p', { class: 'note', role: 'status' });
    const table = element('div'),
      word = element('div', { class: 'word' }),
      pinned = element('div', { class: 'pin-panel' }),
      scatter = element('div', { class: 'scatter' });
    box.append(
      this.controls,
      this.status,
      word,
      table,
      element('h3', {}, 'Pinned'),
      pinned,
      element('h3', {}, 'Every token, two ways'),
      scatter,
    );
    table.after(document.getElementById('explorer-marks'));
    this.pinned = new Pinned(pinned, this.vocabularies, () => {
      this.grid.draw();
      this.scatter.mark();
    });
    this.word = new Word(word, this.vocabularies);
    this.grid = new Grid(table, {
      describe: 'Tokens with their rewards and ranks. Arrow keys move, Enter pins.',
      head: () => this.head(),
      cells: (row) => this.cells(row),
      onPin: (row) => this.pinned.toggle(this.vocabulary, row),
      isPinned: (row) => this.pinned.has(this.vocabulary, row),
    });
    this.scatter = new Scatter(scatter, this.vocabularies, {
      state: () => ({
        vocabulary: this.vocabulary,
        rows: this.rows,
        narrowed: this.narrowed(),
        pins: this.pinned.pins,
      }),
      onPin: (vocabulary, row) => this.pinned.toggle(vocabulary, row),
      onSelect: (vocabulary, rows) => this.selected(vocabulary, rows),
    });
  }

  /** The page's own prompt, where this vocabulary has it. */
  promptOf(vocabulary) {
    const prompts = vocabulary.prompts();
    return [this.prompt, this.index.prompt].find((prompt) => prompts.includes(prompt)) ?? prompts[0];
  }

  narrowed() {
    const { typed, way, kind, survives, selection } = this.query;
    return Boolean(typed !== '' || way === 'exactly' || kind !== 'all' || survives !== 'all' || selection);
  }

  async open() {
    this.columns = this.vocabulary.of(this.prompt);
    const opening = this.columns;
    await Promise.all([this.vocabulary.read(), ...opening.map((column) => column.read())]);
    if (opening !== this.columns) return; // another was chosen meanwhile
    if (this.sort.by === 'reward' && !opening.includes(this.sort.column)) {
      this.sort = {
        ...this.sort,
        column: opening.find((c) => c.name === this.sort.column.name) ?? opening[0],
      };
    }
    this.offer();
    this.find();
  }

  /** The controls for this vocabulary; what was typed stays. */
  offer() {
    const kinds = [...new Set(this.vocabulary.kinds)].sort().map((code) => this.vocabulary.kindNames[code]);
    const set = (key) => (value) => {
      this.query[key] = value;
      this.find();
    };
    const search = element('input', {
      type: 'search',
      placeholder: 'as typed, or its escape: \\n',
      autocomplete: 'off',
      autocapitalize: 'off',
      spellcheck: 'false',
      'aria-describedby': 'explorer-marks',
    });
    search.value = this.query.typed;
    search.addEventListener('input', () => set('typed')(search.value));
    const matchCase = element('input', { type: 'checkbox' });
    matchCase.checked = this.query.matchCase;
    matchCase.addEventListener('change', () => set('matchCase')(matchCase.checked));
    const narrow = [
      this.vocabularies.length > 1 &&
        choice(
          'Candidates',
          this.vocabularies.map((v, i) => [String(i), v.label]),
          String(this.vocabularies.indexOf(this.vocabulary)),
          (value) => this.turnTo(this.vocabularies[Number(value)]),
        ),
      choice(
        'Prompt',
        this.vocabulary.prompts().map((p) => [p, literal(p)]),
        this.prompt,
        (value) => {
          this.prompt = value;
          this.open();
        },
      ),
      element('label', { class: 'wide' }, 'Token ', search),
      choice(
        'which',
        [
          ['contains', 'contains this'],
          ['exactly', 'is exactly this'],
          ['expression', 'matches this expression'],
        ],
        this.query.way,
        set('way'),
      ),
      element('label', {}, matchCase, ' match case'),
      choice(
        'Kind',
        [['all', 'all'], ...kinds.map((kind) => [kind, kind])],
        kinds.includes(this.query.kind) ? this.query.kind : (this.query.kind = 'all'),
        set('kind'),
      ),
      choice(
        'Can be typed',
        [
          ['all', 'all'],
          ['yes', 'survives'],
          ['no', 'does not'],
        ],
        this.query.survives,
        set('survives'),
      ),
    ];
    const focused = this.controls.contains(document.activeElement)
      ? [...this.controls.querySelectorAll('input, select')].indexOf(document.activeElement)
      : -1;
    this.controls.replaceChildren(...narrow.filter(Boolean));
    if (focused >= 0) this.controls.querySelectorAll('input, select')[focused]?.focus();
  }

  turnTo(vocabulary) {
    this.vocabulary = vocabulary;
    this.query.selection = null;
    this.prompt = this.promptOf(vocabulary);
    this.scatter.choose(vocabulary, this.prompt);
    return this.open();
  }

  async selected(vocabulary, rows) {
    const selection = rows.size ? rows : null;
    if (selection && vocabulary !== this.vocabulary) {
      this.vocabulary = vocabulary;
      this.prompt = this.promptOf(vocabulary);
      this.query.selection = selection;
      await this.open();
      return;
    }
    this.query.selection = selection;
    this.find();
  }

  find() {
    let problem = null;
    try {
      const match = matcher(this.vocabulary, this.query);
      this.rows = found(this.vocabulary, { ...this.query, match, columns: this.columns, sort: this.sort });
    } catch (error) {
      if (!(error instanceof SyntaxError || error instanceof RangeError)) throw error;
      problem = error.message;
      this.rows = new Uint32Array(0);
    }
    this.grid.show(this.rows);
    this.scatter.mark();
    this.word.show(this.query.way === 'expression' ? '' : this.query.typed, this.prompt);
    const asked = this.index.prompts[this.prompt];
    const about = ` · ${asked ? `“${literal(asked)}”` : literal(this.prompt)}`;
    this.status.replaceChildren(
      problem ?? `${whole(this.rows.length)} of ${whole(this.vocabulary.rows)} tokens${about}`,
    );
    const save = element('button', { type: 'button' }, 'CSV');
    save.addEventListener('click', () => saved(`${this.prompt}.csv`, csv(this.vocabulary, this.columns, this.rows)));
    this.status.append(' · ', save);
    if (this.query.selection) {
      const clear = element(
        'button',
        { type: 'button' },
        `only the ${whole(this.query.selection.size)} chosen in the scatter: show all again`,
      );
      clear.addEventListener('click', () => {
        this.scatter.clear();
        this.selected(this.vocabulary, new Set());
      });
      this.status.append(' · ', clear);
    }
  }

  sortBy(by, column) {
    const same = this.sort.by === by && this.sort.column === column;
    this.sort = { by, column, descending: same && !this.sort.descending };
    this.find();
    this.grid.header.querySelector('[aria-sort]:not([aria-sort=none]) button')?.focus();
  }

  head() {
    const cell = (label, by, column = null, title = null) => {
      const sorted = this.sort.by === by && this.sort.column === column;
      const down = by === 'reward' ? !this.sort.descending : this.sort.descending;
      const button = element('button', { type: 'button', title }, sorted ? (down ? '↓ ' : '↑ ') : '', label);
      button.addEventListener('click', () => this.sortBy(by, column));
      return element(
        'div',
        {
          role: 'columnheader',
          class: `cell ${by === 'reward' ? 'score' : by}`,
          'aria-sort': sorted ? (down ? 'descending' : 'ascending') : 'none',
        },
        button,
      );
    };
    return [
      cell('token', 'token'),
      cell('id', 'id'),
      element('div', { role: 'columnheader', class: 'cell kind' }, 'kind'),
      ...this.columns.map((column) =>
        cell(
          column.name,
          'reward',
          column,
          `${column.fullName}: reward and rank; rounded to ${column.decimals} decimals; mean ${fixed(column.mean, 3)}, sd ${fixed(column.sd, 3)}`,
        ),
      ),
    ];
  }

  cells(row) {
    const { vocabulary } = this;
    const raw = vocabulary.token(row);
    const mark = survivesEverywhere(this.columns, row) === false ? ' ⊘' : '';
    const cell = (kind, attributes, ...children) =>
      element('div', { role: 'gridcell', class: `cell ${kind}`, ...attributes }, ...children);
    return [
      element(
        'div',
        { role: 'rowheader', class: 'cell token', title: raw === '' ? false : literal(raw) },
        vocabulary.literals[row],
      ),
      cell('id', {}, String(vocabulary.id(row))),
      cell('kind', {}, vocabulary.kind(row) + mark),
      ...this.columns.map((column) =>
        cell(
          'score',
          {},
          column.rewardText(row),
          element('span', { class: 'rank' }, ` ${column.rankText(row)}`),
        ),
      ),
    ];
  }
}
