# The server in a container, for docker-compose.yml, docker-compose.single.yml or by itself: docs/operations.md says how. Node.js as it is developed on.
FROM node:24-slim AS build
WORKDIR /app
COPY . .
# What package-lock.json names, then what was built with it, without what only building needed.
RUN npm ci && npm prune --omit=dev --ignore-scripts

FROM node:24-slim
WORKDIR /app
# Of the `files` of package.json those of package.json that a server reads.
COPY --from=build /app/package.json /app/LICENSE /app/NOTICE ./
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
COPY --from=build /app/config ./config
COPY --from=build /app/migrations ./migrations
COPY --from=build /app/openapi ./openapi
COPY --from=build /app/examples ./examples
RUN mkdir --mode=700 /data && chown node:node /data
ENV NODE_ENV=production HOME=/data
# By number, so that an orchestrator can see that it is not root.
USER 1000:1000
VOLUME /data
EXPOSE 8420
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 CMD ["node", "-e", "fetch(`http://127.0.0.1:${process.env.METIS_SERVER_PORT || process.env.PORT || 8420}/healthz`).then((r) => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
# The young heap as in `npm start`.
ENTRYPOINT ["node", "--max-semi-space-size=16", "--v8-pool-size=1", "/app/dist/server.js"]
CMD ["--data", "/data"]
