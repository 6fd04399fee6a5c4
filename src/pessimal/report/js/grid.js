// A table of any length: only the rows in view are in the document. Arrow keys move, Enter pins.

const ROW = 30; // px, the height of a row; the style sheet has it too
const BEYOND = 8; // rows drawn above and below the view

class Grid {
  /** `head()` gives the header cells, `cells(row)` a row's; `onPin(row)` is told of a click or Enter. */
  constructor(box, { head, cells, onPin, isPinned, describe }) {
    Object.assign(this, { box, head, cells, onPin, isPinned, rows: new Uint32Array(0), active: 0 });
    this.header = element('div', { role: 'row', class: 'row head', 'aria-rowindex': 1 });
    this.body = element('div', { role: 'rowgroup', class: 'body' });
    this.grid = element(
      'div',
      { role: 'grid', class: 'grid', tabindex: 0, 'aria-label': describe },
      this.header,
      this.body,
    );
    this.hint = element('p', { class: 'note', hidden: true }, '↔ scroll sideways');
    box.replaceChildren(this.grid, this.hint);
    this.grid.addEventListener('scroll', () => this.later(), { passive: true });
    this.grid.addEventListener('keydown', (event) => this.key(event));
    this.body.addEventListener('click', (event) => this.clicked(event));
    new ResizeObserver(() => this.later()).observe(this.grid);
  }

  show(rows) {
    this.rows = rows;
    this.active = 0;
    this.grid.scrollTop = 0;
    this.redraw();
  }

  redraw() {
    this.header.replaceChildren(...this.head());
    this.grid.style.setProperty('--columns', this.header.childElementCount);
    this.grid.setAttribute('aria-rowcount', this.rows.length + 1);
    this.grid.setAttribute('aria-colcount', this.header.childElementCount);
    this.body.style.height = `${this.rows.length * ROW}px`;
    this.draw();
  }

  later() {
    this.waiting ??= requestAnimationFrame(() => {
      this.waiting = null;
      this.draw();
    });
  }

  draw() {
    this.hint.hidden = this.grid.scrollWidth <= this.grid.clientWidth;
    const first = Math.max(0, Math.floor(this.grid.scrollTop / ROW) - BEYOND);
    const last = Math.min(
      this.rows.length,
      Math.ceil((this.grid.scrollTop + this.grid.clientHeight) / ROW) + BEYOND,
    );
    const drawn = [];
    for (let place = first; place < last; place++) drawn.push(this.row(place));
    this.body.replaceChildren(...drawn);
    const active = this.body.querySelector('.active');
    if (active) this.grid.setAttribute('aria-activedescendant', active.id);
    else this.grid.removeAttribute('aria-activedescendant');
  }

  row(place) {
    const row = this.rows[place];
    const pinned = this.isPinned(row);
    const made = element(
      'div',
      {
        role: 'row',
        id: `token-row-${row}`,
        'aria-rowindex': place + 2,
        'aria-selected': String(pinned),
        'data-place': place,
        class: `row${place === this.active ? ' active' : ''}${pinned ? ' pinned' : ''}`,
      },
      ...this.cells(row),
    );
    made.style.top = `${place * ROW}px`;
    return made;
  }

  clicked(event) {
    const row = event.target.closest('[data-place]');
    if (!row) return;
    this.active = Number(row.dataset.place);
    this.onPin(this.rows[this.active]);
  }

  key(event) {
    if (event.target !== this.grid || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.grid.clientHeight / ROW) - 2);
    const moves = {
      ArrowDown: 1,
      ArrowUp: -1,
      PageDown: page,
      PageUp: -page,
      Home: -Infinity,
      End: Infinity,
    };
    const sideways = { ArrowRight: 120, ArrowLeft: -120 };
    if (event.key in moves && this.rows.length) {
      this.active = Math.min(this.rows.length - 1, Math.max(0, this.active + moves[event.key]));
      const top = this.active * ROW,
        view = this.grid.clientHeight - this.header.offsetHeight;
      if (top < this.grid.scrollTop) this.grid.scrollTop = top;
      else if (top + ROW > this.grid.scrollTop + view) this.grid.scrollTop = top + ROW - view;
      this.draw();
    } else if (event.key in sideways) {
      this.grid.scrollLeft += sideways[event.key];
    } else if ((event.key === 'Enter' || event.key === ' ') && this.rows.length) {
      this.onPin(this.rows[this.active]);
    } else {
      return;
    }
    event.preventDefault();
  }
}
