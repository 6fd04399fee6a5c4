// Begins: whatever the page has data for.

if (document.getElementById('explorer-index')) {
  const explorer = new Explorer(document.getElementById('explorer-box'), json('explorer-index'));
  explorer.scatter.choose(explorer.vocabulary, explorer.prompt);
  explorer.status.textContent = 'Reading …';
  explorer
    .open()
    .then(() => {
      document.getElementById('explorer').dataset.ready = String(Math.round(performance.now()));
      performance.mark('explorer usable');
    })
    .catch((error) => {
      explorer.status.textContent = `The explorer cannot be shown (${error.message}); a browser of 2023 or later can. All else on this page is there.`;
      throw error;
    });
}
