/** The page, until the chat is there: says which model it is. */

const response = await fetch(new URL("../v1/models", import.meta.url));
const { data } = await response.json();
document.querySelector("h1").textContent = `hello, this is ${data[0].id}`;
