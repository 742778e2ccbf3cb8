document.getElementById("app").textContent = "Intersession";
