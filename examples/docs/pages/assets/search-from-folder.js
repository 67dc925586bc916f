// On pages that are opened from a folder browsers start no worker: what searches then runs in a frame of the page,
// which hears and answers as a worker does. Served pages are left as they are.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #ready;

    constructor(url) {
      super();
      this.#frame.hidden = true;
      document.body.append(this.#frame);
      const inside = this.#frame.contentWindow;
      const load = (source) =>
        new Promise((done, failed) => {
          const script = inside.document.createElement("script");
          Object.assign(script, { src: source, onload: done, onerror: failed });
          inside.document.body.append(script);
        });
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...sources) => Promise.all(sources.map(load));
      this.#ready = load(new URL(url, location.href).href);
    }

    postMessage(data) {
      this.#ready.then(() => {
        const inside = this.#frame.contentWindow;
        inside.dispatchEvent(new inside.MessageEvent("message", { data }));
      });
    }
  };
}
