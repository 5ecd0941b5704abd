import "./style/main.css";
import "./theme";
import { render } from "preact";
import { stranger } from "./api";
import { App } from "./app";
import { listen } from "./live";
import { learnRights } from "./rights";
import { enter } from "./session";

const root = document.getElementById("app");
void enter().then(() => {
  if (!stranger.value) {
    listen();
    void learnRights();
  }
  if (root) render(<App />, root);
});
