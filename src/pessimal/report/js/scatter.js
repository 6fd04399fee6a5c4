// Every token as a point: one model and prompt across, another up; linked with the table of tokens.

const TOLD = 4; // tokens that the tip names where several lie under the pointer

class Scatter {
  /** `state()` gives the explorer's vocabulary, found rows and pins; `onSelect(vocabulary, rows)` hears of a brush. */
  constructor(box, vocabularies, { state, onSelect, onPin }) {
    Object.assign(this, { box, vocabularies, state, onSelect, onPin, near: false, measure: 'reward' });
    this.draw = oneAtATime(() => this.drawNow());
    this.columns = vocabularies.flatMap((vocabulary) => vocabulary.columns);
    this.controls = element('div', { class: 'controls' });
    this.plot = element('div', { class: 'plot', role: 'img' });
    this.note = element('p', { class: 'note', role: 'status' });
    box.replaceChildren(this.controls, this.plot, this.note);
    whenNear(box, () => {
      this.near = true;
      this.draw();
    });
    whenThemeChanges(() => this.draw());
  }

  /** Axes of a vocabulary to begin with: one model's prompt × worst, or two prompts, or two models. */
  choose(vocabulary, prompt) {
    const first = vocabulary.columns[0];
    const own = vocabulary.columns.filter((column) => column.name === first.name);
    const of = (prompt) => own.find((column) => column.prompt === prompt);
    this.x = of(prompt) ?? first;
    const other = own.find((column) => column !== this.x);
    this.y = (this.x.prompt !== 'worst' && of('worst')) || (other ?? vocabulary.of(this.x.prompt)[1] ?? first);
    this.controls.replaceChildren(
      ...this.selects('x', 'Across'),
      ...this.selects('y', 'Up'),
      choice(
        'Scale',
        [
          ['reward', 'reward'],
          ['rank', 'rank'],
        ],
        this.measure,
        (value) => {
          this.measure = value;
          this.draw();
        },
      ),
    );
    this.draw();
  }

  selects(axis, label) {
    const names = [...new Set(this.columns.map((column) => column.name))];
    const prompts = [...new Set(this.columns.map((column) => column.prompt))];
    const change = (name, prompt) => {
      const of = this.columns.filter((column) => column.name === name);
      const asked = of.filter((column) => column.prompt === prompt);
      this[axis] = asked.find((column) => column.vocabulary === this[axis].vocabulary) ?? asked[0] ?? of[0];
      this.controls.querySelector(`[data-prompt=${axis}] select`).value = this[axis].prompt;
      this.draw();
    };
    const model = choice(
      `${label}: model`,
      names.map((name) => [name, name]),
      this[axis].name,
      (value) => change(value, this[axis].prompt),
    );
    const prompt = choice(
      'prompt',
      prompts.map((key) => [key, literal(key)]),
      this[axis].prompt,
      (value) => change(this[axis].name, value),
    );
    prompt.dataset.prompt = axis;
    return [model, prompt];
  }

  /** The points: a row of x's vocabulary and one of y's each; across vocabularies joined by text, as `compare` does. */
  pairs() {
    const [a, b] = [this.x.vocabulary, this.y.vocabulary];
    if (a === b) return { xs: Uint32Array.from({ length: a.rows }, (_, row) => row), ys: null };
    const shared = [...a.barest()].filter(([text]) => b.barest().has(text));
    return {
      xs: Uint32Array.from(shared, ([, row]) => row),
      ys: Uint32Array.from(shared, ([text]) => b.barest().get(text)),
    };
  }

  async drawNow() {
    if (!this.near || !this.x) return;
    const [Bokeh] = await Promise.all([
      bokeh(),
      ...[this.x, this.y].flatMap((column) => [column.read(), column.vocabulary.read()]),
    ]);
    if (this.view) forget(Bokeh, this.view);
    const { xs, ys } = this.pairs();
    this.points = { xs, ys: ys ?? xs };
    const value = (column, row) =>
      this.measure === 'rank' ? column.values.rank[row] : column.values.reward(row);
    const x = Float64Array.from(xs, (row) => value(this.x, row));
    const y = Float64Array.from(this.points.ys, (row) => value(this.y, row));
    this.extremes = null;
    this.source = new Bokeh.ColumnDataSource({ data: { x, y } });
    this.marked = new Bokeh.ColumnDataSource({ data: { x: [], y: [] } });
    this.labels = new Bokeh.ColumnDataSource({ data: { x: [], y: [], text: [], side: [], away: [] } });
    const made = figure(Bokeh, {
      height: 520,
      tools: 'pan,wheel_zoom,box_zoom,box_select,lasso_select,reset,save',
    });
    for (const [axis, column] of [
      [made.below[0], this.x],
      [made.left[0], this.y],
    ]) {
      axis.axis_label = drawn(`${this.measure}, ${column.prompt}, ${column.name}`);
    }
    made.toolbar.active_drag = isTouched()
      ? null
      : (made.toolbar.tools.find((tool) => tool instanceof Bokeh.BoxSelectTool) ?? 'auto');
    made.toolbar.active_scroll = null;
    if (this.measure === 'rank') {
      made.x_range.flipped = true;
      made.y_range.flipped = true;
    }
    const [plain, strong] = [colour('point'), colour('strong')];
    made.scatter(
      { field: 'x' },
      { field: 'y' },
      {
        source: this.source,
        size: 4,
        marker: 'circle',
        line_color: null,
        fill_color: plain,
        fill_alpha: Math.min(0.5, Math.max(0.12, 5000 / x.length)),
        nonselection_fill_alpha: 0.06,
        selection_fill_color: strong,
      },
    );
    made.scatter(
      { field: 'x' },
      { field: 'y' },
      {
        source: this.marked,
        level: 'overlay', // drawn without drawing all the others anew, in 30 ms and not 1 s
        size: 5,
        marker: 'circle',
        line_color: null,
        fill_color: strong,
        fill_alpha: 0.8,
      },
    );
    made.scatter(
      { field: 'x' },
      { field: 'y' },
      {
        source: this.labels,
        level: 'overlay',
        size: 12,
        marker: 'circle',
        fill_color: null,
        line_color: colour('ink'),
        line_width: 2,
      },
    );
    named(made, this.labels, '13px');
    this.view = await put(Bokeh, this.plot, made, {
      x,
      y,
      reach: aroundPoint,
      tell: (indices) => this.tell(indices),
      press: ([index]) => this.onPin(this.x.vocabulary, this.points.xs[index]),
    });
    this.source.selected.change.connect(() => this.brushed());
    this.mark();
    this.describe();
  }

  tell(indices) {
    const near = indices.slice(0, TOLD).flatMap((i) => {
      const [rx, ry] = [this.points.xs[i], this.points.ys[i]];
      return [
        literal(this.x.vocabulary.texts[rx]),
        `  across ${this.x.rewardText(rx)} ${this.x.rankText(rx)} · up ${this.y.rewardText(ry)} ${this.y.rankText(ry)}`,
      ];
    });
    return indices.length > TOLD ? [...near, `and ${whole(indices.length - TOLD)} more here`] : near;
  }

  brushed() {
    const rows = (column, all) => new Set(this.source.selected.indices.map((i) => all[i]));
    const own =
      this.state().vocabulary === this.y.vocabulary && this.state().vocabulary !== this.x.vocabulary;
    const [column, all] = own ? [this.y, this.points.ys] : [this.x, this.points.xs];
    this.onSelect(column.vocabulary, rows(column, all));
  }

  clear() {
    if (this.source) this.source.selected.indices = [];
  }

  /** Draws what the table found, and the pinned tokens, over the rest. */
  mark() {
    if (!this.source) return;
    const { vocabulary, rows, narrowed, pins } = this.state();
    const side = vocabulary === this.x.vocabulary ? 'xs' : vocabulary === this.y.vocabulary ? 'ys' : null;
    const { x, y } = this.source.data;
    const wanted = narrowed && side ? new Set(rows) : new Set();
    const at = [];
    if (wanted.size)
      this.points[side].forEach((row, i) => {
        if (wanted.has(row)) at.push(i);
      });
    this.marked.data = { x: at.map((i) => x[i]), y: at.map((i) => y[i]) };
    const labelled = pins.flatMap((pin) => {
      const own =
        pin.vocabulary === this.x.vocabulary ? 'xs' : pin.vocabulary === this.y.vocabulary ? 'ys' : null;
      const i = own ? this.points[own].indexOf(pin.row) : -1;
      return i < 0 ? [] : [[i, literal(pin.vocabulary.texts[pin.row])]];
    });
    const end = (this.extremes ??= [Math.min, Math.max].map((of) => x.reduce((a, b) => of(a, b))));
    const turned = labelled.map(([i]) =>
      x[i] > end[0] + 0.85 * (end[1] - end[0]) !== (this.measure === 'rank') ? 'right' : 'left',
    );
    this.labels.data = {
      x: labelled.map(([i]) => x[i]),
      y: labelled.map(([i]) => y[i]),
      text: labelled.map(([, text]) => text),
      side: turned,
      away: away(turned),
    };
  }

  describe() {
    const n = whole(this.points.xs.length);
    const what =
      this.x.vocabulary === this.y.vocabulary
        ? `${n} tokens`
        : `${n} tokens whose text, outer white space apart, both vocabularies hold (of several the barest; texts that two tokens have are left out)`;
    this.plot.setAttribute(
      'aria-label',
      `Scatter of ${what}: ${this.x.name} on ${this.x.prompt} against ${this.y.name} on ${this.y.prompt}`,
    );
    this.note.textContent = `${what[0].toUpperCase()}${what.slice(1)}. Point at one to read it, click to pin it, drag to choose some: the table then shows those. What the search found is drawn strongly.`;
  }
}
