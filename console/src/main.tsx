import "./style/main.css";
import "./theme";
import { render } from "preact";
import { stranger } from "./api";
import { App } from "./app";
import { listen } from "./live";
import { learnRights } from "./rights";
import { match } from "./matching";
import { place } from "./router";
import { routes } from "./routes";
import { enter } from "./session";

// Its page is fetched while it is asked who is signed in.
void routes.find((one) => match(one.path, place.value.path))?.load().catch(() => undefined);

const root = document.getElementById("app");
void enter().then(() => {
  if (!stranger.value) {
    listen();
    void learnRights();
  }
  if (root) render(<App />, root);
});
